"""From what a user calls a model to a directory with its config, its tokenizer and its weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import (
    CacheNotFound,
    GatedRepoError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from transformers import AutoTokenizer
from transformers.utils import logging

from flide_engine import smollm2
from flide_engine.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flide_engine.weights import Progress

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", "*.model", "*.txt"]
# The same weights again, in other layouts.
_HUB_REPEATS = ["*/*", "consolidated*"]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that needs no download.

    Attributes:
        name: what `resolve` takes.
        status: "ready"; the embedded model may also be "not converted" (its first use does that) or
            "not installed".
        path: its directory, None unless it is ready.
        nbytes: what it takes on disk, 0 unless it is ready.
    """

    name: str
    status: Literal["ready", "not converted", "not installed"]
    path: Path | None = None
    nbytes: int = 0


def resolve(model: str | Path, *, progress: Progress | None = None) -> Path:
    """The directory of a model, fetched or converted first if need be.

    Args:
        model: a directory, "smollm2" for the embedded model, or a name on the Hugging Face hub such
            as "Qwen/Qwen3.5-0.8B". A directory of your own called smollm2 is "./smollm2".
        progress: told how many bytes of the embedded model are converted, out of how many. The hub
            draws its own bars.

    Raises:
        ModelLoadError: it is none of the three, or it cannot be fetched or converted.
    """
    if model == smollm2.NAME:
        return smollm2.prepare(progress)
    path = Path(os.path.expanduser(model))
    if path.is_file():
        raise ModelLoadError(
            f"{path}: this is a file, and a model is a directory with config.json and "
            f"*.safetensors: give the directory, {str(path.parent)!r}"
        )
    if not path.is_dir():
        if not _HUB_ID.fullmatch(str(model)):
            raise ModelLoadError(
                f"{str(model)!r}: there is no such directory, and it is no name on the Hugging "
                f"Face hub (owner/name) nor {smollm2.NAME!r}: check the path"
            )
        path = _fetch(str(model))
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"{path}: there is no config.json, so this is not a model that transformers saved: "
            "give the directory that holds config.json and *.safetensors"
        )
    return path


def read_config(directory: Path) -> dict[str, Any]:
    """What `config.json` of a model says.

    Raises:
        ModelLoadError: the file is missing, is not JSON, or is not an object.
    """
    path = directory / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"{path}: it cannot be read as JSON ({error}): download the model again"
        ) from error
    if not isinstance(config, dict):
        raise ModelLoadError(
            f"{path}: it should be a JSON object and is a {type(config).__name__}: "
            "download the model again"
        )
    return config


def fingerprint(directory: Path) -> dict[str, str]:
    """Digests of all that a model's checkpoints depend on: configuration, weights and vocabulary.

    Raises:
        ModelLoadError: a file cannot be read.
    """
    names = ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    weights = sorted(path.name for path in directory.glob("*.safetensors"))
    found = {}
    for name in [*names, *weights]:
        if (path := directory / name).is_file():
            try:
                with path.open("rb") as file:
                    found[name] = hashlib.file_digest(file, "blake2b").hexdigest()
            except OSError as error:
                raise ModelLoadError(f"{path}: it cannot be read ({error.strerror}).") from error
    return found


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a model, as transformers loads it, without a word on stderr.

    Code that comes with a model is never run.

    Returns:
        A fast tokenizer of transformers.

    Raises:
        ModelLoadError: transformers cannot load it, for whatever reason.
    """
    try:
        with _quiet():
            return AutoTokenizer.from_pretrained(
                directory, local_files_only=True, trust_remote_code=False
            )
    # What a broken file raises is whatever transformers stumbles over, down to bare Exception.
    except Exception as error:
        raise ModelLoadError(
            f"{directory}: its tokenizer cannot be loaded ({_first_line(error)}): check its "
            "tokenizer.json and tokenizer_config.json, or download them again"
        ) from error


def local_models() -> list[LocalModel]:
    """The embedded model, ready or not, then what the cache of the Hugging Face hub holds."""
    return [_embedded(), *_cached()]


def _fetch(name: str) -> Path:
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=_HUB_FILES, ignore_patterns=_HUB_REPEATS
            )
        )
    except GatedRepoError as error:
        raise ModelLoadError(
            f"{name!r}: its owner wants terms accepted first: accept them at "
            f"https://huggingface.co/{name} and log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelLoadError(
            f"{name!r}: there is no such directory, and no such public model on the Hugging Face "
            "hub: check the name, or log in with `hf auth login` if the model is private"
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelLoadError(
            f"{name!r}: there is no such directory, the Hugging Face hub cannot be reached and its "
            f"cache does not hold the model ({_first_line(error)}): go online, give a directory or "
            f"use the embedded model {smollm2.NAME!r}"
        ) from error
    # The rest is the transport's, and the hub client changes its HTTP library between versions.
    except Exception as error:
        raise ModelLoadError(
            f"{name!r}: the download from the Hugging Face hub failed ({_first_line(error)}): "
            "try again, what has arrived is kept"
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


@contextmanager
def _quiet() -> Iterator[None]:
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)


def _embedded() -> LocalModel:
    try:
        path = smollm2.directory()
    except ModelLoadError:
        return LocalModel(smollm2.NAME, "not installed")
    if not path.is_dir():
        return LocalModel(smollm2.NAME, "not converted")
    nbytes = sum(file.stat().st_size for file in path.iterdir())
    return LocalModel(smollm2.NAME, "ready", path, nbytes)


def _cached() -> list[LocalModel]:
    try:
        repos = huggingface_hub.scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return []
    return [
        LocalModel(repo.repo_id, "ready", revision.snapshot_path, revision.size_on_disk)
        for repo in sorted(repos, key=lambda repo: repo.repo_id)
        for revision in repo.revisions
        # Other revisions are not what the name stands for, and other files are not for us.
        if repo.repo_type == "model"
        and "main" in revision.refs
        and (revision.snapshot_path / "config.json").is_file()
        and any(revision.snapshot_path.glob("*.safetensors"))
    ]
