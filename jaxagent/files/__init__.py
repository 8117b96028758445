"""Places and formats on disk: full disks, folders of models, tokenizers' files."""
