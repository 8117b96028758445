"""State -> prompt text.

`compact` is for tiny models. What a large one is shown, its agent says
(`envs.agents`), from the parts here.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxagent import types
from jaxagent.envs import parser, workspace
from jaxagent.envs.model_line import model_line

MAX_MODEL_CHARS = 260

# Paper 000 table 5 (tools). Action -> (purpose, {argument: hint}, observation).
_FILE = 'a valid file name with relative path to current directory if needed'
_PY = (
  'a valid python script name with relative path to current directory if needed'
)
TOOLS: dict[str, tuple[str, dict[str, str], str]] = {
  'List Files': (
    'Use this to navigate the file system.',
    {
      'dir_path': 'a valid relative path to a directory, such as "." or '
      '"folder1/folder2"'
    },
    'The observation will be a list of files and folders in dir_path or '
    'current directory is dir_path is empty, or an error message if dir_path '
    'is invalid.',
  ),
  'Read File': (
    'Use this to read an existing file.',
    {'file_name': _FILE},
    'The observation will be the contents of the file read.',
  ),
  'Write File': (
    'Use this to write a file. If the file already exists, it will be '
    'overwritten.',
    {'file_name': _FILE, 'content': 'the content to be written to the file'},
    'A success message if the file is written successfully, or an error '
    'message if the file cannot be written.',
  ),
  'Append File': (
    'Use this to append a file to a new location with a new name.',
    {'file_name': _FILE, 'content': 'the content to be appended to the file'},
    'A success message if the file is appended successfully, or an error '
    'message if the file cannot be appended.',
  ),
  'Copy File': (
    'Use this to copy a file to a new location with a new name.',
    {'source': _FILE, 'destination': _FILE},
    'A success message if the file is copied successfully, or an error '
    'message if the file cannot be copied.',
  ),
  'Undo Edit Script': (
    'Use this to undo the last edit of the python script.',
    {'script_name': _PY},
    'The observation will be the content of the script before the last edit. '
    'If the script does not exist, the observation will be an error message.',
  ),
  'Execute Script': (
    'Use this to execute the python script. The script must already exist.',
    {'script_name': _PY},
    'The observation will be output of the script or errors.',
  ),
  'Python REPL': (
    'A python REPL. Use this to execute single line python commands.',
    {'command': 'a valid python command'},
    'The observation will be output of the command or errors.',
  ),
  'Final Answer': (
    'Use this to provide the final answer to the current task.',
    {'final_answer': 'a detailed description on the final answer'},
    'The observation will be empty.',
  ),
  'Understand File': (
    'Use this to read the whole file and understand certain aspects. You '
    'should provide detailed description on what to look for and what should '
    'be returned. To get a better understanding of the file, you can use '
    'Inspect Script Lines action to inspect specific part of the file.',
    {
      'file_name': _FILE,
      'things_to_look_for': 'a detailed description on what to look for and '
      'what should returned',
    },
    'The observation will be a description of relevant content and lines in '
    'the file. If the file does not exist, the observation will be an error '
    'message.',
  ),
  'Append Summary to Research Log': (
    'Append to the summary of previous step to research log',
    {'content': 'a string within 500 character limit'},
    'The observation will be a success message if the content is appended to '
    'the research log. Otherwise, the observation will be an error message.',
  ),
  'Inspect Script Lines': (
    'Use this to inspect specific part of a python script precisely, or the '
    'full content of a short script. The number of lines to display is '
    'limited to 100 lines. This is especially helpful when debugging.',
    {
      'script_name': _PY,
      'start_line_number': 'a valid line number',
      'end_line_number': 'a valid line number',
    },
    'The observation will be the content of the script between '
    'start_line_number and end_line_number . If the script does not exist, '
    'the observation will be an error message.',
  ),
  'Edit Script (AI)': (
    'Use this to do a relatively large but cohesive edit over a python '
    'script. Instead of editing the script directly, you should describe the '
    'edit instruction so that another AI can help you do this.',
    {
      'script_name': f'{_PY}. An empty sctipt will be created if it does not '
      'exist.',
      'edit_instruction': 'a detailed step by step description on how to '
      'edit it.',
      'save_name': _FILE,
    },
    'The observation will be the edited content of the script. If the script '
    'does not exist, the observation will be an error message. You should '
    'always double check whether the edit is correct.',
  ),
  'Edit Script Segment (AI)': (
    'Use this to do a relatively large but cohesive edit over a python script '
    'over a segment. Instead of editing the script directly, you should '
    'describe the edit instruction so that another AI can help you do this.',
    {
      'script_name': f'{_PY}. An empty sctipt will be created if it does not '
      'exist.',
      'start_line_number': 'a valid line number',
      'end_line_number': 'a valid line number',
      'edit_instruction': 'a detailed step by step description on how to '
      'edit it.',
      'save_name': _FILE,
    },
    'The observation will be the edited content of the script. If the script '
    'does not exist, the observation will be an error message. You should '
    'always double check whether the edit is correct.',
  ),
  'Reflection': (
    'Use this to look over all the past steps and reflect. You should provide '
    'detailed description on what to reflect on and what should be returned.',
    {
      'things_to_reflect_on': 'a detailed description on what to reflect on '
      'and what should be returned'
    },
    'The observation will be a the reflection.',
  ),
  'Retrieval from Research Log': (
    'Use this to retrieve relevant information from the research log. You '
    'should provide detailed description on what to look for and what should '
    'be returned.',
    {
      'current_plan': 'a detailed description of the current research plan '
      'and status'
    },
    'The observation will be a description of relevant content and lines in '
    'the research log.',
  ),
  'Request Help': (
    'Use this to request help from human. Use this only when the provided '
    'tools and files are not enough for accomplishing necessary steps, such '
    'as requesting API reference or installing a library. So you should check '
    'through the provided tools and files first.',
    {'request': 'a detailed description on what to do'},
    'The observation will be the response from human.',
  ),
}

# Paper 000 table 6.
FORMAT = {
  'Reflection': 'What does the observation mean? If there is an error, what '
  'caused the error and how to debug?',
  'Research Plan and Status': 'The full high-level research plan, with '
  'current status and confirmed results of each step briefly annotated. It '
  'must only include progress that has been made by previous steps. If there '
  'is any update, enclose the new update text in double asterisks **like '
  'this**. If there is no update, just copy the previous step Research Plan '
  'and Status. The high-level plan from the previous step should be fully '
  'retained, unless it is intentionally revised.',
  'Fact Check': 'List all objective statements in the updates to Research '
  'Plan and Status one by one and point out whether it is guessed versus '
  'directly confirmed by the previous observation directly above. '
  'Performance numbers can only be confirmed by running the code and '
  'observing the output.',
  'Thought': 'What you are currently doing, what actions to perform and why',
  'Action': 'The action to take, should be one of the names of the tools',
  'Action Input': 'The input to the action as a valid JSON string',
}


def tools_prompt(actions: Sequence[str] = parser.DEFAULT_ACTIONS) -> str:
  """Paper 000 table 5's tools prompt for a set of actions."""
  blocks = []
  for name in actions:
    if name not in TOOLS:
      raise ValueError(
        f'unknown action {name!r}; choose among {", ".join(TOOLS)}.'
      )
    purpose, args, observation = TOOLS[name]
    inputs = ',\n'.join(f'    "{k}": [{v}]' for k, v in args.items())
    blocks.append(
      f'- {name}:\n{purpose}\nUsage:\n```\nAction: {name}\n'
      f'Action Input: {{\n{inputs}\n}}\nObservation: [{observation}]\n```'
    )
  return '\n'.join(blocks)


def format_prompt(entries: Sequence[str] = parser.ENTRIES) -> str:
  """Paper 000 table 6 for all entries or the without-thought variant."""
  return '\n'.join(f'{name}: {FORMAT[name]}' for name in entries)


def number(value: float | None) -> str:
  """Four significant digits; 'none' for no score."""
  return 'none' if value is None else f'{value:.4g}'


def _shorten(text: str, limit: int) -> str:
  """Head and tail of a text that is too long."""
  if len(text) <= limit:
    return text
  head = limit * 2 // 3
  return f'{text[:head]} ... {text[-(limit - head) :]}'


def model_text(state: types.State) -> str:
  """The current script's model expression on one line."""
  line = model_line(workspace.text(state.files, state.script))
  return _shorten(line.removeprefix('model = '), MAX_MODEL_CHARS) or 'unknown'


def compact(state: types.State, task: types.TaskSpec) -> str:
  """The prompt for tiny models: 60 to 90 tokens of a 1024-entry BPE."""
  better = 'higher' if task.higher_is_better else 'lower'
  last = state.last_outcome or 'none'
  return (
    f'Task: {task.name}, {task.modality} {task.kind}\n'
    f'Metric: {task.metric}, {better} is better\n'
    f'Model: {model_text(state)}\n'
    f'Step {state.step}, score {number(state.score)}, '
    f'start {number(state.start_score)}, last: {last}\n'
  )


def research_problem(state: types.State, task: types.TaskSpec) -> str:
  """The task in words, with the ideas of the state (paper 000 appendix B.2)."""
  better = 'higher' if task.higher_is_better else 'lower'
  problem = task.research_problem.strip() or (
    f'Given a training script {state.script} on the dataset {task.name}, '
    f'improve its {task.metric} ({better} is better) and write the '
    f'predictions to {task.submission}.'
  )
  if state.ideas:
    problem += '\nIn your first steps, prioritize these ideas:\n' + '\n'.join(
      f'- {idea}' for idea in state.ideas
    )
  return problem
