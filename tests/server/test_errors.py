"""What a client is told."""

import grpc
import pytest
import tensorflow as tf

from tfxformer.server.errors import (
    CODES,
    HTTP_STATUS,
    ServingError,
    from_tensorflow,
    unexpected,
)


def test_codes_are_grpc_s():
    by_number = sorted(grpc.StatusCode, key=lambda code: code.value)
    assert [code.name for code in by_number] == CODES
    assert all(400 <= HTTP_STATUS[code] < 600 for code in CODES[1:])


def test_messages_are_one_short_line():
    error = ServingError("INTERNAL", "a\n  b\t" + "c" * 10**6)
    assert error.message.startswith("a b ccc") and len(error.message) < 1100


@pytest.mark.parametrize("kind", ["InvalidArgumentError", "ResourceExhaustedError"])
def test_tensorflow_s_errors_keep_their_reason_alone(kind):
    message = (
        "Graph execution error:\n\nDetected at node 'x' defined at (most recent call "
        "last):\n<stack traces unavailable>\nassertion failed: [too bad]\n\t [[{{node "
        "a/b}}]] [Op:__inference_signature_wrapper_1]"
    )
    error = from_tensorflow(getattr(tf.errors, kind)(None, None, message))
    assert error.message == "assertion failed: [too bad]"
    assert error.code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")


def test_a_real_one():
    @tf.function
    def fail():
        tf.debugging.assert_equal(1, tf.random.uniform([], 2, 3, tf.int32), "too bad")

    with pytest.raises(tf.errors.OpError) as caught:
        fail()
    message = from_tensorflow(caught.value).message
    assert "too bad" in message and ".py" not in message


def test_what_nobody_expected_is_not_told():
    error = unexpected(KeyError("secret"))
    assert error.code == "INTERNAL" and "secret" not in error.message
