from specmesh.models.corpus import SourceFile, read_sources, split, standard_library


def _file(path, seed, lines=60):
    return SourceFile(path, "".join(f"value_{seed}_{i} = {seed * i}\n" for i in range(lines)))


def test_split_is_disjoint_and_complete():
    files = [_file(f"m{i}.py", i) for i in range(200)]
    corpus = split(files)
    training = {file.path for file in corpus.training}
    held_out = {file.path for file in corpus.held_out}
    assert not training & held_out
    assert training | held_out == {file.path for file in files}
    assert 1 <= len(held_out) <= 25


def test_split_does_not_depend_on_order():
    files = [_file(f"m{i}.py", i) for i in range(100)]
    forwards, backwards = split(files), split(reversed(files))
    assert {f.path for f in forwards.held_out} == {f.path for f in backwards.held_out}


def test_file_with_a_twin_is_not_held_out():
    files = [_file(f"m{i}.py", i) for i in range(100)]
    chosen = split(files).held_out[0]
    twin = SourceFile("twin.py", "# a copy, indented\n" + chosen.text.replace("value", "    value"))
    assert chosen.path not in {file.path for file in split([*files, twin]).held_out}


def test_third_party_packages_and_undecodable_files_are_left_out(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "blank.py").write_text("\n")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "b.py").write_text("y = 2\n")
    assert [file.path for file in read_sources(tmp_path)] == ["a.py"]


def test_a_corpus_may_lie_within_a_third_party_package(tmp_path):
    folder = tmp_path / "site-packages" / "package"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text("x = 1\n")
    assert [file.path for file in read_sources(folder)] == ["a.py"]


def test_no_four_lines_of_a_held_out_file_are_common_in_training():
    corpus = split(read_sources(standard_library()))
    assert len(corpus.held_out) > 20

    def runs(text):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return {tuple(lines[i : i + 4]) for i in range(len(lines) - 3)}

    trained = set().union(*(runs(file.text) for file in corpus.training))
    for file in corpus.held_out:
        own = runs(file.text)
        assert len(own & trained) <= 0.05 * len(own), file.path
