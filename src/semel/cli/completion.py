"""`semel completion`: a script that makes the shell complete commands and options, written from the parsers."""

from __future__ import annotations

import argparse
import sys

from semel.cli.failures import Exit

SHELLS = ("bash", "zsh", "fish")
_EXAMPLES = """examples:
  source <(semel completion bash)                                # this shell; in ~/.bashrc: every one
  source <(semel completion zsh)                                 # after compinit, in ~/.zshrc
  semel completion fish > ~/.config/fish/completions/semel.fish
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.description = "Print a script that makes the shell complete commands and options."
    command.epilog = _EXAMPLES
    command.add_argument("shell", choices=SHELLS)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from semel.cli.completion_scripts import script
    from semel.cli.main import COMMANDS, parser_for

    sys.stdout.write(script(options.shell, parser_for(*COMMANDS)))
    return Exit.OK
