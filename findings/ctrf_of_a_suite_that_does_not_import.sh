#!/usr/bin/env bash
# pytest-json-ctrf: the report of a suite one of whose files does not import.
# One would expect: a failure, as junitxml counts an error.
# What happens: the summary has 0 tests and 0 failed: who takes
#   `failed == 0`, or passed == tests, for success pays for it. The exit status, 2, is right.
# Versions: pytest-json-ctrf 0.6.1, pytest 9.2.0, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages pytest==9.2.0 pytest-json-ctrf==0.6.1
program <<'PY'
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as tree

suite = pathlib.Path('suite')
suite.mkdir()
(suite / 'test_here.py').write_text('def test_here():\n  assert True\n')
(suite / 'test_gone.py').write_text('import no_such_module\n')
command = [sys.executable, '-m', 'pytest', '-q', '--ctrf=report.json', '--junitxml=report.xml']
print('exit status', subprocess.run([*command, suite], stdout=2).returncode)
summary = json.loads(pathlib.Path('report.json').read_text())['results']['summary']
print('ctrf', {key: summary[key] for key in ('tests', 'passed', 'failed', 'other')})
(found,) = tree.parse('report.xml').getroot().iter('testsuite')
print('junit', {key: found.get(key) for key in ('tests', 'errors', 'failures')})
PY
recorded <<'SEEN'
exit status 2
ctrf {'tests': 0, 'passed': 0, 'failed': 0, 'other': 0}
junit {'tests': '1', 'errors': '1', 'failures': '0'}
SEEN
