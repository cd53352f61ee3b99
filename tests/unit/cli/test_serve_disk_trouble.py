"""A node that cannot use its disk, or finds it full, says so when it starts or stops, and what to do."""

import errno
import os
import signal

import pytest

from semel.broker.broker import Broker
from semel.cli import main, serving


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("when", ["start", "stop"])
def test_a_full_disk_is_told_with_what_to_do(when, number, tmp_path, monkeypatch, capsys):
    async def full(self):
        raise OSError(number, os.strerror(number))

    async def started(self):
        self.bound = {one.name: one.bound_to(1) for one in self.config.layout.listeners}
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Broker, "start", started)
    monkeypatch.setattr(Broker, when, full)
    monkeypatch.setattr(serving, "raise_limit", lambda: None)
    assert main.main(["serve", "--data", str(tmp_path), "--port", "0"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert os.strerror(number) in told
    assert str(tmp_path) in told
    assert "start" in told
    assert "again" in told


def test_a_directory_that_cannot_be_one_is_told_with_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(serving, "raise_limit", lambda: None)
    (tmp_path / "file").write_text("")
    assert main.main(["serve", "--data", str(tmp_path / "file"), "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert str(tmp_path / "file") in told
    assert "Errno" not in told
    assert "--data" in told
