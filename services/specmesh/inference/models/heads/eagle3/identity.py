"""The target of a head: what its files say about it, and whether a model is the one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.eagle3.config import Eagle3Config


@dataclass(frozen=True, slots=True)
class HeadsTarget:
    """The target that a head's files name beside sizes: often none, unless we trained it.

    ``name`` is that of a folder or a Hugging Face id. ``digests`` are the target's
    ``ModelDescription.weights_digest`` by data type; if there are any, they alone count.
    """

    name: str | None = None
    architectures: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)

    def check(self, config: Eagle3Config, folder: Path, target: Any, digest: str) -> None:
        """Raise ``ModelNotLoadable`` unless ``target``, a model as ``read_model`` returns it, may
        be the target: what its files say is compared, and what they don't say is unknown."""
        text_config = target.config.get_text_config()
        compared = [
            *self._compared(target, digest),
            ("hidden size", config.target_hidden_size, text_config.hidden_size),
            ("vocabulary size", config.vocab_size, text_config.vocab_size),
        ]
        for what, theirs, ours in compared:
            if theirs != ours:
                raise ModelNotLoadable(
                    f"the heads in {str(folder)!r} are for another target, with {what} {theirs}, "
                    f"but this target has {what} {ours}"
                )

    def _compared(self, target: Any, digest: str) -> list[tuple[str, object, object]]:
        """Return what identifies the target, as the files have it, and as ``target`` has it."""
        if self.digests:
            told = ", ".join(f"{each} in {dtype}" for dtype, each in self.digests.items())
            return [("weights", digest if digest in self.digests.values() else told, digest)]
        compared: list[tuple[str, object, object]] = []
        # A copy of the model is the model, in whatever folder.
        if self.name is not None and _last_part(self.name) != _last_part(target.name_or_path):
            compared.append(("name", self.name, target.name_or_path))
        architecture = type(target).__name__
        if self.architectures and architecture not in self.architectures:
            compared.append(("architecture", ", ".join(self.architectures), architecture))
        return compared


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
