import pytest

from semel.wire.errors import ErrorCode, UnknownApi, WireError


def test_every_code_from_minus_one_to_the_last_one_of_kafka_4_is_there() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


def test_every_code_explains_itself_in_words_of_its_own() -> None:
    texts = [code.text for code in ErrorCode]
    assert all(texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("code", "retriable"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.SHARE_SESSION_LIMIT_REACHED, True),
    ],
)
def test_a_code_says_whether_to_try_again(code: ErrorCode, retriable: bool) -> None:
    assert code.retriable is retriable


def test_a_code_is_an_integer_that_a_field_can_hold() -> None:
    assert int(ErrorCode.UNSUPPORTED_VERSION) == 35
    assert ErrorCode(35) is ErrorCode.UNSUPPORTED_VERSION


def test_malformed_bytes_are_a_value_error() -> None:
    assert issubclass(WireError, ValueError)
    assert issubclass(UnknownApi, WireError)
