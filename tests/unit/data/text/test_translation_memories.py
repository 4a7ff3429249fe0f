"""TMX, XLIFF and PO as pairs; XML without entities."""

import gzip

import pytest

from heedful.data.sources import ParallelFilesConfig, TextFilesConfig
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.translation_memories import POConfig, TMXConfig, XLIFFConfig
from heedful.errors import ConfigError, DataError
from heedful.tasks.classification.task import TASK as CLASSIFICATION
from heedful.tasks.command_line import PARALLEL_FILES
from heedful.tasks.text_input import TextInput

TMX = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="de-DE"/><body>
<tu><tuv xml:lang="en-US"><seg>The <bpt i="1">&lt;b&gt;</bpt>dog<ept i="1">&lt;/b&gt;</ept>
  &amp; the <hi>cat</hi></seg></tuv><tuv xml:lang="de-DE"><seg>Hund und Katze</seg></tuv></tu>
<tu><tuv xml:lang="de-DE"><seg>ohne</seg></tuv></tu>
<tu><tuv xml:lang="de-DE"><seg>Haus</seg></tuv><tuv xml:lang="en-US"><seg>house</seg></tuv></tu>
</body></tmx>"""
GERMAN_ENGLISH = [Pair("Hund und Katze", "The dog & the cat"), Pair("Haus", "house")]
XLIFF_1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="de" datatype="plaintext" original="a"><body>
<trans-unit id="1"><source>the <g id="1">dog</g><x id="2"/></source><target>der Hund</target>
<alt-trans><source>a dog</source><target>ein Hund</target></alt-trans></trans-unit>
<trans-unit id="2"><source>not translated</source></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en"
trgLang="de"><file id="f"><unit id="1"><segment><source>the <pc id="1">dog</pc></source>
<target>der Hund</target></segment></unit></file></xliff>"""
PO = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: main.c:10
msgctxt "menu"
msgid "Say \"yes\"\n"
"or no"
msgstr "Ja oder "
"nein"
#, fuzzy
msgid "old"
msgstr "alt?"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "untranslated"
msgstr ""
#~ msgid "gone"
#~ msgstr "weg"
"""


def write(folder, text, name):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["memory.tmx", "memory.tmx.gz"])
def test_tmx_starts_from_the_source_language(name, tmp_path):
    assert TMXConfig(path=write(tmp_path, TMX, name)).read() == GERMAN_ENGLISH


@pytest.mark.parametrize("columns", [("en", None), ("en", "de"), (None, "de-DE"), ("en_us", "DE")])
def test_tmx_languages_can_be_chosen(columns, tmp_path):
    path = write(tmp_path, TMX, "memory.tmx")
    pairs = TMXConfig(path=path, source_column=columns[0], target_column=columns[1]).read()
    assert pairs == [Pair(*pair[::-1]) for pair in GERMAN_ENGLISH]


def test_tmx_of_three_languages_needs_a_choice(tmp_path):
    more = '<tuv xml:lang="fr"><seg>maison</seg></tuv></tu>\n</body>'
    path = write(tmp_path, TMX.replace("</tu>\n</body>", more), "memory.tmx")
    with pytest.raises(DataError, match="no unit has the language 'it'") as caught:
        TMXConfig(path=path, source_column="de", target_column="it").read()
    assert caught.value.hint.endswith("languages found: 'en-us', 'de-de', 'fr'")
    assert TMXConfig(path=path, source_column="de", target_column="fr").read() == [
        Pair("Haus", "maison")
    ]


@pytest.mark.parametrize("text", [XLIFF_1, XLIFF_2])
def test_xliff_pairs_source_and_target(text, tmp_path):
    path = write(tmp_path, text, "texts.xlf")
    assert XLIFFConfig(path=path).read() == [Pair("the dog", "der Hund")]
    swapped = XLIFFConfig(path=path, source_column="de", target_column="en")
    assert swapped.read() == [Pair("der Hund", "the dog")]
    with pytest.raises(DataError, match="translates from 'en' to 'de'"):
        XLIFFConfig(path=path, source_column="fr").read()


def test_po_leaves_out_fuzzy_obsolete_and_untranslated_messages(tmp_path):
    path = write(tmp_path, PO, "de.po")
    expected = [
        Pair('Say "yes" or no', "Ja oder nein"),
        Pair("%d file", "%d Datei"),
        Pair("%d files", "%d Dateien"),
    ]
    assert POConfig(path=path).read() == expected
    swapped = POConfig(path=path, source_column="msgstr", target_column="msgid").read()
    assert swapped == [Pair(*pair[::-1]) for pair in expected]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('<!DOCTYPE t [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><t>&b;</t>', ":1: the entity 'a' is"),
        ('<!DOCTYPE t [<!ENTITY a SYSTEM "/etc/passwd">]><t>&a;</t>', ":1: the entity 'a' is"),
        ('<!DOCTYPE t SYSTEM "t.dtd"><t>\n&nbsp;</t>', ":2: the entity 'nbsp' is declared or used"),
        ("<tmx>\n<tu></tmx>", ":2: not XML (mismatched tag)"),
        ("<tmx/>", ": contains no translated units"),
    ],
)
def test_broken_or_hostile_xml_raises(document, message, tmp_path):
    path = write(tmp_path, document, "memory.tmx")
    with pytest.raises(DataError) as caught:
        TMXConfig(path=path).read()
    assert f"{path}{message}" in str(caught.value)


def test_line_that_is_not_po_raises(tmp_path):
    path = write(tmp_path, 'msgid "a"\nmsgstr b\n', "de.po")
    with pytest.raises(DataError, match=r"de\.po:2: not a line of PO"):
        POConfig(path=path).read()


@pytest.mark.parametrize(
    ("name", "data_type"), [("a.tmx", "tmx"), ("a.XLF.gz", "xliff"), ("de.po", "po")]
)
def test_options_choose_the_format_by_the_name(name, data_type):
    files = {"pairs": name, "source_column": "de"}
    expected = {"type": data_type, "path": name, "source_column": "de"}
    assert PARALLEL_FILES.data_setting(files) == expected


@pytest.mark.parametrize("name", ["memory.tmx", "texts.xlf.gz", "de.po"])
@pytest.mark.parametrize(
    "read",
    [
        lambda path: ParallelFilesConfig(source=path, target=path).read(),
        lambda path: TextFilesConfig(path=path).read(),
        lambda path: list(TextInput(path).read()),
    ],
    ids=["parallel", "running-text", "input"],
)
def test_units_of_translation_are_not_read_as_lines(read, name, tmp_path):
    path = write(tmp_path, PO, name)
    with pytest.raises(DataError, match="files contain translations, not a text in each line") as e:
        read(path)
    assert e.value.hint.startswith("as training or test data: --pairs FILE")


def test_labels_are_not_read_from_translations():
    with pytest.raises(ConfigError, match=r"de\.po: contains translations, no labels"):
        CLASSIFICATION.data.file_options.data_setting({"labeled": "de.po"})
