"""Reading, expanding and splitting samples: every format, every complaint, no surprise on arbitrary input."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from blocc.errors import BloccError, InputError, ProblemError
from blocc.svm.data.samples import (
    LabelledData,
    expand_data,
    expand_quadratic,
    proportional_sizes,
    read_csv,
    read_libsvm,
    read_samples,
    split_indices,
)
from svm_datasets import shared_dataset

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MATRICES = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- CSV -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("content", "label", "features", "labels", "names"),
    [
        ("1,2,0\n3,4,1\n", None, [[1, 2], [3, 4]], [0, 1], ("x1", "x2")),
        ("a,b,kind\n1,2,u\n3,4,v\n", None, [[1, 2], [3, 4]], ["u", "v"], ("a", "b")),
        ("a,Class,b\n1,u,2\n3,v,4\n", None, [[1, 2], [3, 4]], ["u", "v"], ("a", "b")),
        ("a,class,b\n1,5,2\n3,6,4\n", "b", [[1, 5], [3, 6]], [2, 4], ("a", "class")),
        ("a,class,b\n1,5,2\n3,6,4\n", "B", [[1, 5], [3, 6]], [2, 4], ("a", "class")),
        ("a,b,c\n1,2,3\n", 0, [[2, 3]], [1], ("b", "c")),
        ("a,b,c\n1,2,3\n", "-3", [[2, 3]], [1], ("b", "c")),
        ("7;8;9\n", "1", [[7, 9]], [8], ("x1", "x2")),
        ("a\tb\ty\n1\t2\t-1\n", None, [[1, 2]], [-1], ("a", "b")),
        ("a;b;y\n1.5;-2e3;+1\n", None, [[1.5, -2000]], [1], ("a", "b")),
        ('"a, long";"b ""x""";y\n"1";2;"no; yes"\n', None, [[1, 2]], ["no; yes"], ("a, long", 'b "x"')),
        ("\ufeffa,b,y\r\n\r\n1,2,0\r\n,,\r\n3,4,1\r\n\r\n", None, [[1, 2], [3, 4]], [0, 1], ("a", "b")),
        ("a,b,y\r1,2,0\r3,4,1\r", None, [[1, 2], [3, 4]], [0, 1], ("a", "b")),
        (" a , b ,y\n 1 , 2 , z \n", None, [[1, 2]], ["z"], ("a", "b")),
        (",b,y\n0,2,1\n", None, [[0, 2]], [1], ("x1", "b")),
        # The label's heading may be a number; a first row with numbers elsewhere is a sample.
        ("a,b,2023\n1,2,0\n", None, [[1, 2]], [0], ("a", "b")),
        ("a,2023,b\n1,2,0\n", "2023", [[1, 0]], [2], ("a", "b")),
        ("1,2,y\n3,4,n\n", None, [[1, 2], [3, 4]], ["y", "n"], ("x1", "x2")),
        # Headings that count the features.
        ("0,1,2,label\n5,6,7,1\n", None, [[5, 6, 7]], [1], ("0", "1", "2")),
        ("1,2,0.5\n3,4,1\n", None, [[1, 2], [3, 4]], [0.5, 1.0], ("x1", "x2")),
        ("1,2,1\n3,4,one\n", None, [[1, 2], [3, 4]], ["1", "one"], ("x1", "x2")),
    ],
)
def test_csv(
    content: str, label: Any, features: list[list[float]], labels: list[Any], names: tuple[str, ...], tmp_path: Path
) -> None:
    data = read_csv(put(tmp_path, "some.csv", content), label=label)
    assert data.X.tolist() == features
    assert data.y.tolist() == labels
    assert data.feature_names == names
    assert data.name == "some"
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert data.y.dtype.kind == {int: "i", float: "f", str: "U"}[type(labels[0])]


@pytest.mark.parametrize(
    ("content", "label", "message"),
    [
        ("", None, "s.csv is empty; it must have a row for each sample"),
        ("\ufeff\n \n,,\n", None, "s.csv is empty"),
        ("a,b,y\n", None, "s.csv has headings, but no samples"),
        ("1 2 3\n", None, "s.csv line 1: has one column"),
        ("1,2,0\n\n3,4\n", None, "s.csv line 3: has 2 columns, but line 1 has 3"),
        ("1,2,0\n3,4,5,6\n", None, "s.csv line 2: has 4 columns, but line 1 has 3"),
        ("a,b,y\n1,,0\n", None, "s.csv line 2, column 2 (b): '': the value is missing; features must be numbers"),
        ("a,b,y\n1,?,0\n", None, "s.csv line 2, column 2 (b): '?': the value is missing"),
        ("a,b,y\n1,2,0\nNaN,2,0\n", None, "s.csv line 3, column 1 (a): 'NaN': the value is missing"),
        ("1,2,0\n1,red,0\n", None, "s.csv line 2, column 2: 'red': not a finite number; features must be numbers"),
        ("1,2,0\n1,-inf,0\n", None, "s.csv line 2, column 2: '-inf': not a finite number"),
        ("1,2,0\n1,1_0,0\n", None, "s.csv line 2, column 2: '1_0': not a finite number"),
        ("1,2,0\n1,1e999,0\n", None, "s.csv line 2, column 2: '1e999': not a finite number"),
        ("1,5;2;0\n", None, "s.csv line 1, column 1: '1,5': not a finite number; write decimals with a point"),
        ("y,a,b\n0,1,2\n0,1,x\n", None, "s.csv line 3, column 3 (b): 'x'"),
        ("?,?,1\n1,2,0\n", None, "s.csv line 1, column 1: '?': the value is missing"),
        ("1,2,0\n1,2,\n", None, "s.csv line 2, column 3: the label is missing ('')"),
        ("a,b,y\n1,2,nan\n", None, "s.csv line 2, column 3 (y): the label is missing ('nan')"),
        ("1,2," + "z" * 201, None, "the label has 201 characters; up to 200 are read"),
        ("a,b,y\n1,2,0\n", "z", "s.csv has no column 'z'; its first line reads: a, b, y"),
        ("a,b,y\n1,2,0\n", 3, "label = '3' is not a column of s.csv, which has 3; give a position from 0 to 2"),
        ("a,b,y\n1,2,0\n", "-4", "label = '-4' is not a column of s.csv"),
        ("a,b,y\n1,2,0\n", 1.5, "label must be a heading or the position of a column, got 1.5"),
        ("a,a,b\n1,2,0\n", "a", "the heading 'a' occurs more than once"),
        ("a,class,target\n1,2,0\n", None, "several columns could be the label (class, target); choose one with label"),
        ('1,"2,0\n3,4,0\n', None, "s.csv line 1: not CSV as it should be"),
        ('1,2,0\n3,"4"x,0\n', None, "s.csv line 2: not CSV as it should be"),
        (b"1,2,0\n\xe9,2,0\n", None, "s.csv line 2: is not UTF-8; save the file with the encoding UTF-8"),
        ("1,2,0\n".encode("utf-16"), None, "s.csv line 1: holds a zero byte"),
    ],
)
def test_csv_complaints(content: str | bytes, label: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_csv(put(tmp_path, "s.csv", content), label=label)
    assert message in str(error.value)


def test_csv_record_over_several_lines(tmp_path: Path) -> None:
    path = put(tmp_path, "s.csv", 'a,b,y\n1,2,"two\nlines"\n3,x,0\n')
    with pytest.raises(InputError, match=r"s\.csv line 4, column 2 \(b\): 'x'"):
        read_csv(path)


# --- LIBSVM --------------------------------------------------------------------------------------------------------
def test_libsvm(tmp_path: Path) -> None:
    content = "\ufeff# a comment\r\n+1 1:0.5 3:-2e-1 # and another\r\n\r\n-1\r\n-1 2:7 4:0 \r\n"
    data = read_libsvm(put(tmp_path, "some.libsvm", content))
    assert data.X.tolist() == [[0.5, 0, -0.2, 0], [0, 0, 0, 0], [0, 7, 0, 0]]
    assert data.y.tolist() == [1, -1, -1]
    assert data.y.dtype == np.int64
    assert data.feature_names == ("x1", "x2", "x3", "x4")
    assert data.name == "some"
    assert read_libsvm(put(tmp_path, "f", "0.5 1:1\n2 1:2\n")).y.tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "s.svm is empty; a line of a LIBSVM file reads 'label index:value index:value ...'"),
        ("# nothing\n", "s.svm is empty"),
        ("1\n-1\n", "s.svm has labels, but no features"),
        ("1 1:2\nred 1:2\n", "s.svm line 2: the label 'red' is not a number"),
        ("1:2 2:3\n", "s.svm line 1: the label '1:2' is not a number"),
        ("1,2 1:3\n", "s.svm line 1: the label '1,2' is not a number"),
        ("nan 1:3\n", "s.svm line 1: the label 'nan' is not a number"),
        ("1 qid:3 1:2\n", "s.svm line 1: 'qid:3' is for ranking, which is not supported"),
        ("1 1:2 3\n", "s.svm line 1: '3' is not a pair index:value"),
        ("1 a:2\n", "s.svm line 1: 'a:2' is not a pair"),
        ("1 -1:2\n", "s.svm line 1: '-1:2' is not a pair"),
        ("1 ٣:2\n", "is not a pair"),
        ("1 1:\n", "s.svm line 1: the value in '1:' is not a finite number"),
        ("1 1:x\n", "the value in '1:x' is not a finite number"),
        ("1 1:nan\n", "the value in '1:nan' is not a finite number"),
        ("1 1:1:2\n", "the value in '1:1:2' is not a finite number"),
        ("1 0:2\n", "s.svm line 1: index 0; indices of LIBSVM files start at 1"),
        ("1 2:2 2:3\n", "s.svm line 1: index 2 follows index 2; indices must increase"),
        ("1 2:2 1:3\n", "s.svm line 1: index 1 follows index 2"),
        ("1 1:1\n1 999999999:1\n", "s.svm line 2: the index in '999999999:1' is too large; indices up to 1,000,000"),
        (f"1 {'9' * 9000}:1\n", "is too large"),
        ("1 1000000:1\n" + "1\n" * 500, "s.svm line 501: 501 rows with 1,000,000 columns are too many; 500,000,000"),
        (b"1 1:2\n1 1:\xff\n", "s.svm line 2: is not UTF-8"),
        (b"1 1:2\0\n", "s.svm line 1: holds a zero byte"),
    ],
)
def test_libsvm_complaints(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_libsvm(put(tmp_path, "s.svm", content))
    assert message in str(error.value)


# --- any file ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["s.libsvm", "s.SVM", "s.svmlight", "s.txt", "s", "s.data"])
def test_libsvm_by_ending_or_content(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, name, "# first\n-1\n+1 1:2 2:3\n")
    assert read_samples(path).X.tolist() == [[0, 0], [2, 3]]
    assert read_samples(str(path)).name == "s"
    with pytest.raises(InputError, match=r"label is for CSV files; .* is a LIBSVM file"):
        read_samples(path, label=0)


@pytest.mark.parametrize("name", ["s.csv", "s.TSV", "s.txt", "s", "s.data"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", " , "])
def test_csv_by_ending_or_content(name: str, delimiter: str, tmp_path: Path) -> None:
    lines = [("a", "b", "sort"), ("1", "2", "u"), ("3", "4", "v")]
    data = read_samples(put(tmp_path, name, "\n".join(delimiter.join(line) for line in lines)), label="SORT")
    assert data.y.tolist() == ["u", "v"]
    assert data.X.tolist() == [[1, 2], [3, 4]]
    assert data.feature_names == ("a", "b")


def test_path_may_have_a_built_in_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "diabetes", "1 1:2\n")
    assert read_samples(Path("diabetes")).n_samples == 1
    assert read_samples("./diabetes").n_samples == 1


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*absent.*built-in name: breast_cancer, diabetes, fourcl"):
        read_samples(tmp_path / "absent.csv")
    for read in (read_csv, read_libsvm, read_samples):
        for path in (tmp_path, "nul\0byte", "x" * 5000):
            with pytest.raises(InputError, match=r"there is no file|cannot read"):
                read(path)


def test_size_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "s.csv", "1,2,0\n" * 5)
    monkeypatch.setattr("blocc.svm.data.samples.MAX_CELLS", 12)
    with pytest.raises(InputError, match=r"s\.csv line 5: 5 rows with 3 columns are too many; 12 numbers"):
        read_csv(path)
    monkeypatch.setattr("blocc.svm.data.text.MAX_LINE_BYTES", 5)
    with pytest.raises(InputError, match=r"s\.csv line 1: is longer than 5 bytes"):
        read_csv(path)
    monkeypatch.setattr("blocc.svm.data.text.MAX_BYTES", 20)
    with pytest.raises(InputError, match=r"files up to 0\.0 GB are read"):
        read_csv(path)


def test_a_file_of_three_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as handle:
        handle.truncate(3 * 10**9)  # sparse: takes no room on the disk
    with pytest.raises(InputError, match=r"has 3\.0 GB; files up to 2\.0 GB are read"):
        read_samples(path)


@FUZZ
@given(st.binary(max_size=200) | st.text(alphabet='01.,;:\t\n\r -+e"#ayqid?', max_size=120).map(str.encode))
def test_arbitrary_bytes(tmp_path: Path, content: bytes) -> None:
    path = put(tmp_path, "any", content)
    for read in (read_csv, read_libsvm, read_samples):
        with contextlib.suppress(BloccError):
            data = read(path)
            assert data.X.shape == (data.n_samples, data.n_features) == (len(data.y), len(data.feature_names))
            assert np.isfinite(data.X).all()


@FUZZ
@given(MATRICES, st.sampled_from(",;\t"), st.booleans(), st.sampled_from([(-1, 1), (0, 1, 2), ("u", "v w")]))
def test_csv_is_read_back(tmp_path: Path, matrix: np.ndarray, delimiter: str, headings: bool, kinds: tuple) -> None:
    labels = [kinds[row % len(kinds)] for row in range(len(matrix))]
    rows = [[*map(repr, row.tolist()), str(label)] for row, label in zip(matrix, labels, strict=True)]
    if headings:
        rows.insert(0, [*(f"f{k}" for k in range(matrix.shape[1])), "sort"])
    data = read_csv(put(tmp_path, "m.csv", "\n".join(map(delimiter.join, rows))))
    np.testing.assert_array_equal(data.X, matrix)
    assert data.y.tolist() == labels


@FUZZ
@given(MATRICES, st.booleans())
def test_libsvm_is_read_back(tmp_path: Path, matrix: np.ndarray, sparse: bool) -> None:
    matrix[0, -1] = 1.0  # otherwise nothing in the sparse file says how many columns there are
    labels = [1 if row % 3 else -1 for row in range(len(matrix))]
    text = ""
    for row, label in zip(matrix.tolist(), labels, strict=True):
        pairs = [f"{index}:{value!r}" for index, value in enumerate(row, 1) if value or not sparse]
        text += f"{label:+d} {' '.join(pairs)}\n"
    data = read_libsvm(put(tmp_path, "m.libsvm", text))
    np.testing.assert_array_equal(data.X, matrix)
    assert data.y.tolist() == labels


@pytest.mark.parametrize(("name", "shape"), [("diabetes", (768, 8)), ("fourclass", (862, 2))])
def test_data_sets_of_the_published_experiment(name: str, shape: tuple[int, int]) -> None:
    data = shared_dataset(name)
    assert data.X.shape == shape
    assert data.classes.tolist() == [-1, 1]
    assert np.abs(data.X).max() == 1
    assert data.name == name


# --- LabelledData --------------------------------------------------------------------------------------------------
def test_labelled_data() -> None:
    data = LabelledData(np.asfortranarray([[1, 2], [3, 4]]), np.array(["2", "-1"]), ("a", "b"), "mine")
    assert (data.n_samples, data.n_features) == (2, 2)
    assert data.X.flags.c_contiguous
    assert data.X.dtype == np.float64
    assert data.y.dtype == np.int64
    assert data.classes.tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("features", "labels", "names", "message"),
    [
        ([1.0, 2.0], [0, 1], ("a",), "X must be a matrix with rows and columns, got the shape (2,)"),
        ([["u"], ["v"]], [0, 1], ("a",), "X must be a matrix of real numbers"),
        ([[1j], [2j]], [0, 1], ("a",), "X must be a matrix of real numbers"),
        ([[1.0], [np.nan]], [0, 1], ("a",), "X contains NaN or infinite values"),
        (np.ones((0, 1)), [], ("a",), "X must be a matrix with rows and columns"),
        ([[1.0], [2.0]], [0], ("a",), "X has 2 rows, but y has 1 labels"),
        ([[1.0], [2.0]], [[0], [1]], ("a",), "y must be a vector"),
        ([[1.0], [2.0]], [0, np.inf], ("a",), "y contains NaN or infinite"),
        ([[1.0], [2.0]], [0, 1], ("a", "b"), "X has 1 columns, but feature_names has 2 names"),
    ],
)
def test_labelled_data_complaints(features: Any, labels: Any, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProblemError) as error:
        LabelledData(np.array(features), np.array(labels), names, "mine")
    assert message in str(error.value)


# --- expansion and splits ------------------------------------------------------------------------------------------
@given(st.integers(1, 7), st.integers(1, 8), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_expansion(rows: int, width: int, seed: int) -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="needs scikit-learn, the extra blocc[svm]")
    matrix = np.random.default_rng(seed).normal(size=(rows, width))
    expected = preprocessing.PolynomialFeatures(2).fit_transform(matrix)
    ours = expand_quadratic(matrix)
    assert ours.shape == (rows, (width + 1) * (width + 2) // 2)
    np.testing.assert_allclose(np.sort(ours, axis=1), np.sort(expected, axis=1), rtol=1e-14)
    np.testing.assert_array_equal(ours[:, : width + 1], np.column_stack([np.ones(rows), matrix]))


def test_expanded_data() -> None:
    data = expand_data(LabelledData(np.array([[2.0, 3.0]]), np.array([1]), ("a", "b"), "mine"))
    assert data.feature_names == ("1", "a", "b", "a^2", "a*b", "b^2")
    assert data.X.tolist() == [[1, 2, 3, 4, 6, 9]]
    assert (data.name, data.y.tolist()) == ("mine", [1])
    assert expand_quadratic(np.ones((5, 8))).shape == (5, 45)


def test_expansion_complaints() -> None:
    with pytest.raises(ProblemError, match=r"X must be a matrix .* got the shape \(3,\)"):
        expand_quadratic(np.ones(3))
    with pytest.raises(ProblemError, match="X has values whose products overflow; scale the features"):
        expand_quadratic(np.array([[1e200]]))
    with pytest.raises(ProblemError, match="X with 300 rows and 3000 columns is too large"):
        expand_quadratic(np.zeros((300, 3000)))


@given(st.integers(3, 300), st.data())
@settings(max_examples=50, deadline=None)
def test_splits(n: int, draw: st.DataObject) -> None:
    train = draw.draw(st.integers(1, n - 2))
    validation = draw.draw(st.integers(1, n - train - 1))
    seed = draw.draw(st.integers(0, 2**40))
    parts = split_indices(n, train=train, validation=validation, seed=seed)
    assert [len(part) for part in parts] == [train, validation, n - train - validation]
    assert sorted(np.concatenate(parts)) == list(range(n))
    again = split_indices(n, train=train, validation=validation, seed=seed)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_other_seeds_give_other_splits() -> None:
    first, second = (split_indices(100, train=50, validation=20, seed=seed)[0].tolist() for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 2}, "n must be a whole number of at least 3, got 2"),
        ({"train": 0}, "train must be a whole number of at least 1, got 0"),
        ({"train": 2.5}, "train must be a whole number of at least 1, got 2.5"),
        ({"validation": -1}, "validation must be a whole number of at least 1, got -1"),
        ({"validation": 6}, "train = 4 and validation = 6 leave no test samples; their sum must be below n = 10"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": None}, "seed must be a whole number of at least 0, got None"),
    ],
)
def test_split_complaints(changes: dict[str, Any], message: str) -> None:
    arguments = {"n": 10, "train": 4, "validation": 3, "seed": 0, **changes}
    with pytest.raises(InputError) as error:
        split_indices(arguments.pop("n"), **arguments)
    assert message in str(error.value)


def test_proportional_sizes() -> None:
    assert proportional_sizes(768) == (500, 150)
    assert proportional_sizes(1536) == (1000, 300)
    assert proportional_sizes(862) == (561, 168)
    assert proportional_sizes(10, reference=(5, 3, 2)) == (5, 3)
    assert proportional_sizes(3) == (1, 1)
    for n in range(3, 100):
        split_indices(n, train=proportional_sizes(n)[0], validation=proportional_sizes(n)[1], seed=0)


@pytest.mark.parametrize("reference", [(1, 2), (1, 0, 1), (1, 2, float("nan")), ("a", 1, 2)])
def test_proportions_that_are_none(reference: Any) -> None:
    with pytest.raises(InputError, match="reference must be three positive numbers"):
        proportional_sizes(10, reference=reference)
    with pytest.raises(InputError, match="n must be a whole number of at least 3"):
        proportional_sizes(2)
