"""Argos Translate, which LibreTranslate runs, gives the translations of a run from its package."""

import json
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

import heedful as package
from heedful.conversion.argos_export import write_sentence_splitter
from heedful.conversion.exporting import export_run
from heedful.errors import ConfigError
from heedful.tasks.translation.sentences import sentence_spans
from tests.exporting import export, train_letters

PACKAGES = ("argostranslate", "ctranslate2", "minisbd", "onnx")
pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(
        not all(map(find_spec, PACKAGES)), reason=f"not installed: one of {', '.join(PACKAGES)}"
    ),
]
TEXTS = ["a b c", "c c a d", "b", "d a b c a b", "e f", "a é b"]
XDG_VARIABLES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
INSTALL = """
import sys
from argostranslate import package

package.install_from_path(sys.argv[1])
"""
TRANSLATE = """
import json
from argostranslate import translate

translation = translate.get_translation_from_codes("la", "en").underlying
print(json.dumps([translation.hypotheses(text, 1)[0].value for text in json.load(sys.stdin)]))
"""
DOCUMENTS = [
    "A dog. It sleeps.",
    'He said "Go!" Then he went. "Nein." She stayed.',
    "Dr. Meier kam am 3. Mai, z.B. um 10 Uhr. Dann ging er (endlich!) heim.",
    "It costs 3.50 euros. 20 people paid... Nobody else did. why? Because.",
    "U.S. cars e.g. Fords are here. Vgl. Nr. 5 usw. Ende",
    "犬は走る。猫は「にゃあ。」と言う。終わり",
    "one line without an end",
    "Wait… Really?! Yes.",
    "J. S. Bach wrote it. So what",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_letters(tmp_path_factory.mktemp("argos"), is_transformer=True)


def argos_environment(folder):
    """Return an environment whose packages are in a folder; searches are greedy, in fp32."""
    folders = {name: str(folder / name.split("_")[1].lower()) for name in XDG_VARIABLES}
    settings = {"ARGOS_BEAM_SIZE": "1", "ARGOS_COMPUTE_TYPE": "float32", "HOME": str(folder)}
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return others | folders | settings


def translate(run):
    return [result.text for result in package.load(run).translate(TEXTS, beam_size=1)]


def test_argos_gives_the_translations_of_the_run(run, tmp_path):
    out = tmp_path / "package"
    export(run, "argos", out, "--languages", "la-en")
    done = subprocess.run(
        [sys.executable, "-c", INSTALL + TRANSLATE, out / "translate-la_en-1_0.argosmodel"],
        input=json.dumps(TEXTS),
        env=argos_environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == translate(run)
    assert "libretranslate --load-only la,en" in (out / "README.md").read_text()


@pytest.fixture(scope="session")
def libretranslate(tmp_path_factory):
    """Python of an environment with LibreTranslate, whose pins fit no other one."""
    if (python := os.environ.get("HEEDFUL_LIBRETRANSLATE_PYTHON")) is None:
        folder = tmp_path_factory.mktemp("libretranslate")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(folder / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "libretranslate"]
        if subprocess.run(install, check=False).returncode:
            pytest.skip("libretranslate cannot be installed")
    return Path(python)


@pytest.mark.slow
def test_libretranslate_gives_the_translations_of_the_run(run, tmp_path, libretranslate):
    export(run, "argos", tmp_path / "package", "--languages", "la-en")
    environment = argos_environment(tmp_path)
    file = tmp_path / "package" / "translate-la_en-1_0.argosmodel"
    subprocess.run([libretranslate, "-c", INSTALL, file], env=environment, check=True)
    (tmp_path / "data" / "argos-translate" / "index.json").write_text("[]")  # no network
    command = [libretranslate.with_name("libretranslate"), "--load-only", "la,en"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([*command, "--port", str(port)], env=environment, cwd=tmp_path) as server:
        try:
            answers = [ask(f"http://127.0.0.1:{port}/translate", text) for text in TEXTS]
        finally:
            server.kill()
    assert answers == translate(run)


def ask(url, text):
    body = json.dumps({"q": text, "source": "la", "target": "en"}).encode()
    request = Request(url, body, {"Content-Type": "application/json"})
    for _ in range(300):
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)["translatedText"]
        except URLError:  # it starts
            time.sleep(0.2)
    raise AssertionError("no answer")


def test_languages_are_needed_where_files_do_not_name_them(run, tmp_path):
    with pytest.raises(ConfigError, match="add --languages de-en"):
        export_run(run, "argos", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def splitter(tmp_path_factory):
    from minisbd import SBDetect

    path = tmp_path_factory.mktemp("splitter") / "rules.onnx"
    write_sentence_splitter(path)
    return SBDetect(str(path), use_gpu=False, max_threads=1)


@pytest.mark.parametrize("text", DOCUMENTS)
def test_splitter_finds_the_sentences_of_our_rules(splitter, text):
    expected = [text[start:end] for start, end in sentence_spans(text)]
    assert splitter.sentences(text) == expected
