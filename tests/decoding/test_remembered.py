"""Values that are computed anew only if they are old."""

from itertools import count

from specmesh.decoding.predict.remembered import Remembered


def test_a_value_is_computed_anew_once_it_is_old_or_of_another_key():
    remembered, numbers = Remembered[int](), count()

    def at(now, key="a"):
        return remembered.at(now, 1.0, key, lambda: next(numbers))

    assert [at(5.0), at(5.9), at(6.0), at(6.1)] == [0, 0, 1, 1]
    assert [at(6.2, "b"), at(6.3, "b"), at(6.4)] == [2, 2, 3]
