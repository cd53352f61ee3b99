"""SIGHUP, as logrotate sends it: a log file that was renamed is begun anew under its name."""

import logging

from semel.cli import serving


def test_a_log_file_that_was_renamed_is_begun_anew(tmp_path):
    path, before = tmp_path / "node.log", tmp_path / "node.log.1"
    handler = logging.FileHandler(path)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        logging.getLogger("semel").info("before")
        path.rename(before)
        serving._reopen_logs()
        logging.getLogger("semel").info("after")
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
    assert before.read_text() == "before\n"
    anew, after = path.read_text().splitlines()
    assert anew.startswith("SIGHUP: log files opened anew: ")  # pytest has one of its own
    assert after == "after"
