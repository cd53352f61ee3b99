"""The send buffer of a node's connections: the setting reaches the network that the node listens with."""

import pytest

from semel.cli import main, serving


class Served(Exception):
    pass


@pytest.mark.parametrize(("told", "wanted"), [([], 102_400), (["20000"], 20_000), (["-1"], None)])
def test_the_setting_reaches_the_network(told, wanted, tmp_path, monkeypatch):
    def host(**options):
        assert options == {"send_buffer_bytes": wanted}
        raise Served

    monkeypatch.setattr(serving, "real_host", host)
    monkeypatch.setattr(serving, "raise_limit", lambda: None)
    settings = [word for value in told for word in ("--set", f"socket.send.buffer.bytes={value}")]
    with pytest.raises(Served):
        main.main(["serve", "--data", str(tmp_path), "--port", "0", *settings])


def test_a_buffer_of_nothing_is_refused(tmp_path, capsys):
    assert main.main(["serve", "--data", str(tmp_path), "--set", "socket.send.buffer.bytes=0"]) == 2
    assert "socket.send.buffer.bytes" in capsys.readouterr().err
