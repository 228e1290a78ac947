"""File arguments: names, globs, lists, URLs, and the mistakes people make with them."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partt.data.files.lists import InputFile, expand_files
from partt.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a_2.root", "a_1.root", "b.root", "sub/c.root"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


def urls(*arguments: str) -> list[str]:
    return [file.url for file in expand_files(arguments)]


def test_name_and_glob(folder: Path) -> None:
    files = expand_files([f"TTBar:{folder}/b.root", f"QCD:{folder}/a_*.root"])
    assert files == (
        InputFile("TTBar", f"{folder}/b.root"),
        InputFile("QCD", f"{folder}/a_1.root"),
        InputFile("QCD", f"{folder}/a_2.root"),
    )


def test_without_name_the_sample_is_empty(folder: Path) -> None:
    assert expand_files([f"{folder}/b.root"]) == (InputFile("", f"{folder}/b.root"),)


def test_recursive_glob_leaves_folders_out(folder: Path) -> None:
    assert urls(f"{folder}/**")[-1].endswith("sub/c.root")
    assert len(urls(f"{folder}/**")) == 4


def test_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert urls("x:b.root", "sub/*.root") == ["b.root", "sub/c.root"]


def test_file_url_is_a_path(folder: Path) -> None:
    assert urls(f"x:file://{folder}/a_*.root") == [f"{folder}/a_1.root", f"{folder}/a_2.root"]


def test_glob_characters_in_a_real_name(folder: Path) -> None:
    (folder / "odd[1].root").touch()
    assert urls(f"{folder}/odd[1].root") == [f"{folder}/odd[1].root"]


def test_list_file(folder: Path) -> None:
    (folder / "more.txt").write_text("sub/c.root\n")
    (folder / "list.txt").write_text(
        "# signal\nTTBar:a_*.root\n\n  b.root  \n@more.txt\nroot://host//d/x.root\n"
    )
    assert expand_files([f"@{folder}/list.txt"]) == (
        InputFile("TTBar", f"{folder}/a_1.root"),
        InputFile("TTBar", f"{folder}/a_2.root"),
        InputFile("", f"{folder}/b.root"),
        InputFile("", f"{folder}/sub/c.root"),
        InputFile("", "root://host//d/x.root"),
    )


def test_a_name_before_a_list_is_for_the_lines_without_one(folder: Path) -> None:
    (folder / "more.txt").write_text("sub/c.root\n")
    (folder / "list.txt").write_text("TTBar:a_1.root\nb.root\n@more.txt\nroot://host//d/x.root\n")
    assert expand_files([f"QCD:@{folder}/list.txt", f"{folder}/a_2.root"]) == (
        InputFile("TTBar", f"{folder}/a_1.root"),
        InputFile("QCD", f"{folder}/b.root"),
        InputFile("QCD", f"{folder}/sub/c.root"),
        InputFile("QCD", "root://host//d/x.root"),
        InputFile("", f"{folder}/a_2.root"),
    )


@pytest.mark.parametrize(
    ("argument", "sample", "url"),
    [
        ("root://host//d/x.root", "", "root://host//d/x.root"),
        ("TTBar:root://host:1094//d/x.root", "TTBar", "root://host:1094//d/x.root"),
        ("https://host/x.root?token=a*b", "", None),
        ("https://host:8443/x.root?token=ab", "", "https://host:8443/x.root?token=ab"),
        ("T T:https://host/x.root", "T T", "https://host/x.root"),
        ("a:root://[::1]//x.root", "a", "root://[::1]//x.root"),
        ("C:s3://bucket/x.root", "C", "s3://bucket/x.root"),
    ],
)
def test_urls_without_a_glob_need_no_server(argument: str, sample: str, url: str | None) -> None:
    if url is None:
        with pytest.raises(DataError, match="cannot list files"):
            expand_files([argument])
    else:
        assert expand_files([argument]) == (InputFile(sample, url),)


@pytest.mark.parametrize("argument", ["TTBar:{}/x_*.root", "{}/missing.root", "{}/su*"])
def test_no_match_names_the_argument(folder: Path, argument: str) -> None:
    argument = argument.format(folder)
    with pytest.raises(DataError, match="matches no file") as raised:
        expand_files([argument])
    assert argument in str(raised.value)


@pytest.mark.parametrize("name", ["", "QCD:"])
def test_a_folder_suggests_its_files(folder: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"is a folder.*sub/\*\.root"):
        expand_files([f"{name}{folder}/sub/"])
    with pytest.raises(DataError, match=r"is a folder.*/d/\*\.root"):
        expand_files([f"{name}root://host//d/"])


@pytest.mark.parametrize("samples", [("A", "A"), ("A", "B")])
def test_same_file_twice(folder: Path, samples: tuple[str, str]) -> None:
    arguments = [f"{samples[0]}:{folder}/a_*.root", f"{samples[1]}:{folder}/a_1.root"]
    with pytest.raises(DataError, match=r"a_1\.root is given twice") as raised:
        expand_files(arguments)
    assert all(repr(argument) in str(raised.value) for argument in arguments)


def test_same_file_through_links(folder: Path) -> None:
    (folder / "link.root").symlink_to(folder / "b.root")
    (folder / "linked").symlink_to(folder / "sub")
    for other in (f"{folder}/link.root", f"{folder}/sub/../b.root"):
        with pytest.raises(DataError, match="given twice"):
            expand_files([f"{folder}/b.root", other])
    with pytest.raises(DataError, match="given twice"):
        expand_files([f"{folder}/sub/c.root", f"{folder}/linked/c.root"])


def test_same_url_twice() -> None:
    with pytest.raises(DataError, match="given twice"):
        expand_files(["A:root://host//x.root", "B:root://host//x.root"])


def test_bad_lists(folder: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the list .*none\.txt"):
        expand_files([f"@{folder}/none.txt"])
    (folder / "empty.txt").write_text("# nothing\n")
    with pytest.raises(DataError, match="names no files"):
        expand_files([f"@{folder}/empty.txt"])
    (folder / "loop.txt").write_text("@loop.txt\n")
    with pytest.raises(DataError, match="contains itself"):
        expand_files([f"@{folder}/loop.txt"])


def test_unknown_protocol() -> None:
    with pytest.raises(DataError, match="nosuch"):
        expand_files(["nosuch://host/x_*.root"])


@pytest.mark.parametrize("text", ["~nobody_has_this_name/x.root", "\0", "x" * 300, "x" * 300 + "*"])
def test_paths_that_cannot_be(text: str) -> None:
    with pytest.raises(DataError, match="matches no file|null byte|name too long"):
        expand_files([text])
    with pytest.raises(DataError, match="cannot read the list"):
        expand_files([f"@{text}"])


@given(st.text(max_size=30))
def test_any_text_is_files_or_a_data_error(text: str) -> None:
    with suppress(DataError):
        expand_files([text])
