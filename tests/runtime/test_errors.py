from ramet.runtime.errors import BackendError, InvalidArgument, RametError, from_wire, to_wire


def test_an_error_crosses_the_channel_as_itself():
    error = from_wire(*to_wire(InvalidArgument("n=0: must be at least 1")))
    assert type(error) is InvalidArgument
    assert str(error) == "n=0: must be at least 1"
    assert isinstance(error, ValueError)


def test_a_foreign_error_becomes_a_backend_error_with_its_name():
    error = from_wire(*to_wire(ZeroDivisionError("oops")))
    assert type(error) is BackendError
    assert "ZeroDivisionError: oops" in str(error)
    assert isinstance(from_wire("Unheard", "x"), RametError)
