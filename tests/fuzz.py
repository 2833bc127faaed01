"""Messages that nobody would send: hypothesis strategies over descriptors."""

import re
import struct

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from specmesh.decoding.predict.confidence import SCORERS
from specmesh.decoding.predict.predictors import PREDICTORS
from specmesh.orchestrator.strategies import STRATEGIES

MAX_DEPTH = 4
"""Of messages in messages: ``Struct`` holds itself."""

_UNSIGNED = {FieldDescriptor.TYPE_UINT32: 32, FieldDescriptor.TYPE_UINT64: 64}
_SIGNED = {FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_INT64: 64}
_EXTREME_FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), float("-inf")]
_NAMES = ["toy", *STRATEGIES, *PREDICTORS, *SCORERS]
"""Texts that mean something to the mesh."""
_EXTREME_TEXTS = ["", "a", " ", "\0", "def f(", "é", "\U0001f600", "a" * 300, "../..", "{{ 7 }}"]
_PLAIN: dict[int, st.SearchStrategy[object]] = {
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.sampled_from(_EXTREME_TEXTS)
    | st.sampled_from(_NAMES)
    | st.text(max_size=20),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=20),
    FieldDescriptor.TYPE_FLOAT: st.sampled_from(_EXTREME_FLOATS) | st.floats(width=32),
    FieldDescriptor.TYPE_DOUBLE: st.sampled_from(_EXTREME_FLOATS) | st.floats(),
}


def messages(descriptor: Descriptor, depth: int = 0) -> st.SearchStrategy[Message]:
    """Messages of ``descriptor``: each field left out or set to anything its type can hold."""
    kind = GetMessageClass(descriptor)
    fields = [field for field in descriptor.fields if depth < MAX_DEPTH or not field.message_type]
    values = {field.name: st.none() | st.deferred(_deferred(field, depth)) for field in fields}
    return st.fixed_dictionaries(values).map(lambda chosen: _filled(kind, chosen))


def _deferred(field: FieldDescriptor, depth: int):
    return lambda: _values(field, depth)


def _filled(kind: type[Message], chosen: dict[str, object]) -> Message:
    """Of several members of a oneof the last one counts."""
    message = kind()
    for name, value in chosen.items():
        if value is not None:
            message.MergeFrom(kind(**{name: value}))
    return message


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[object]:
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return st.dictionaries(_one(key, depth + 1), _one(value, depth + 1), max_size=3)
    one = _one(field, depth)
    return st.lists(one, max_size=4) if field.is_repeated else one


def _one(field: FieldDescriptor, depth: int) -> st.SearchStrategy[object]:
    if field.message_type:
        return messages(field.message_type, depth + 1)
    if field.enum_type:
        known = [value.number for value in field.enum_type.values]
        return st.sampled_from([*known, max(known) + 1, -1, 2**31 - 1])
    if bits := _UNSIGNED.get(field.type):
        return st.sampled_from([0, 1, 2**bits - 1]) | st.integers(0, 100)
    if bits := _SIGNED.get(field.type):
        least = -(2 ** (bits - 1))
        return st.sampled_from([0, 1, -1, -least - 1, least]) | st.integers(0, 100)
    return _PLAIN[field.type]


def one_field_of(valid: Message) -> st.SearchStrategy[Message]:
    """``valid`` with one of its fields, or of theirs, set to anything its type can hold."""
    descriptor = valid.DESCRIPTOR

    def changed(field: FieldDescriptor) -> st.SearchStrategy[Message]:
        if field.message_type and not field.is_repeated and valid.HasField(field.name):
            inner = one_field_of(getattr(valid, field.name)) | _values(field, 0)
        else:
            inner = _values(field, 0)
        return inner.map(lambda value: _replaced(valid, field.name, value))

    return (
        st.sampled_from(list(descriptor.fields)).flatmap(changed)
        if descriptor.fields
        else st.just(valid)
    )


def _replaced(valid: Message, name: str, value: object) -> Message:
    message = type(valid)()
    message.CopyFrom(valid)
    message.ClearField(name)
    message.MergeFrom(type(valid)(**{name: value}))
    return message


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """Bytes near ``valid``: cut off, with some bytes changed, or with others after them."""
    cut = st.integers(0, len(valid)).map(lambda end: valid[:end])
    changed = st.dictionaries(
        st.integers(0, max(len(valid) - 1, 0)), st.integers(0, 255), max_size=4
    ).map(lambda changes: bytes(changes.get(at, byte) for at, byte in enumerate(valid)))
    longer = st.binary(max_size=20).map(lambda more: valid + more)
    unknown = st.integers(1000, 2**29 - 1).map(lambda number: valid + _varint(number << 3) + b"\1")
    return st.one_of(cut, changed, longer, unknown, st.binary(max_size=40))


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return struct.pack(f"{len(parts) + 1}B", *parts, number)


def arrivals(valid: Message) -> st.SearchStrategy[bytes]:
    """What may come instead of ``valid``: another message, one like it, one twice, no message."""
    similar = one_field_of(valid)
    others = (messages(valid.DESCRIPTOR), similar, similar.flatmap(one_field_of))
    sent = [other.map(lambda message: message.SerializeToString()) for other in others]
    serialized = valid.SerializeToString()
    twice = sent[0].map(lambda more: serialized + more)
    return st.one_of(*sent, twice, mutated(serialized))


def names_a_field(descriptor: Descriptor, path: str) -> bool:
    """Whether ``path`` ("sampling.top_p", "tokens.ids[3]") leads to a field or oneof."""
    at: Descriptor | None = descriptor
    for step in path.split("."):
        name = re.sub(r"\[\w*\]$", "", step)
        if at is None:
            return False
        if at.full_name == "google.protobuf.Struct":  # what follows is the client's own
            return True
        if name in at.oneofs_by_name:
            at = None
        elif field := at.fields_by_name.get(name):
            at = field.message_type
        else:
            return False
    return True
