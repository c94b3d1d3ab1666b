"""A method of its author's own Python: what identifies it, what is refused, what a bundle seals."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.bundle.manifest import FileEntry, Role, parse_manifest
from runner.canonical import canonical_bytes, sha256_label
from runner.check import check_manifest
from runner.compare import Verdict
from runner.engine.fake import Script
from runner.errors import BundleError, DataError, KeyError_, ManifestError, SealbenchError
from runner.imagelock import load_locks
from runner.manifest import load_freeze_manifest, load_run_manifest
from runner.merge import MergeRequest, merge
from runner.model import Outcome, Plan
from runner.modules import (
    ENTRY,
    MAX_BYTES,
    MAX_FILES,
    Module,
    ModuleFile,
    load_sealed,
    planned_modules,
    read_module,
)
from runner.plan import build_plan, try_plan
from runner.protocol.freeze import freeze
from runner.verify.bundle import VerifyRequest, verify_bundle
from tests.sealed import DATA_ROOT, KEY, ROOT, TRUST, Sandbox, does, overlap, protocol, sandbox
from tests.unit.test_reproduce import again
from tests.unit.test_verify import sign_again

EXAMPLE = ROOT / "examples" / "module" / "run.yaml"
BENCHMARKS = ROOT / "manifests" / "benchmarks"
SOURCE = "def score(left, right):\n    return float(left == right)\n"
CUSTOM = "{name: mine, image: code, method: custom, module: mine.py}"


def module(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def digest(path: Path) -> str:
    return read_module(path, below=path.parent).digest


def test_equal_content_is_one_module_wherever_it_lies(tmp_path: Path) -> None:
    expected = digest(module(tmp_path / "a", {"method.py": SOURCE, "lib/x.py": "X = 1\n"}))
    other = module(tmp_path / "deep" / "b", {"method.py": SOURCE, "lib/x.py": "X = 1\n"})
    os.utime(other / "method.py", (1, 1))
    (other / "method.py").chmod(0o755)
    module(other, {"__pycache__/method.cpython-311.pyc": b"\0", "lib/__pycache__/x.pyc": b"\0"})
    assert digest(other) == expected
    single = module(tmp_path / "c", {"any_name.py": SOURCE}) / "any_name.py"
    assert digest(single) == digest(module(tmp_path / "d", {"method.py": SOURCE}))


@pytest.mark.parametrize(
    "changed",
    [
        {"method.py": SOURCE.replace("\n", "\r\n")},
        {"method.py": SOURCE + "\n"},
        {"method.py": "\ufeff" + SOURCE},
        {"lib/x.py": "X = 2\n"},
        {"more.txt": ""},
        {"Lib/x.py": "X = 1\n"},
    ],
)
def test_other_content_is_another_module(tmp_path: Path, changed: dict[str, str]) -> None:
    files = {"method.py": SOURCE, "lib/x.py": "X = 1\n"}
    first, other = module(tmp_path / "a", files), module(tmp_path / "b", {**files, **changed})
    assert digest(first) != digest(other)


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")


def no_unicode(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff.py")).touch()


REFUSED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no entry": (lambda f: (f / "method.py").rename(f / "other.py"), "data.module-entry", "no met"),
    "a link": (lambda f: (f / "x.py").symlink_to("method.py"), "data.module-file", "symbolic link"),
    "a link out": (lambda f: (f / "x.py").symlink_to("/etc/passwd"), "data.module-file", "link"),
    "a linked folder": (lambda f: (f / "x").symlink_to("/etc"), "data.module-file", "link"),
    "a fifo": (fifo, "data.module-file", "no regular file"),
    "bytes": (lambda f: (f / "x.py").write_bytes(b"\xff"), "data.module-text", "x.py is no UTF-8"),
    "NUL": (lambda f: (f / "x.py").write_bytes(b"\0"), "data.module-text", "NUL"),
    "compiled": (lambda f: (f / "x.so").write_bytes(b""), "data.module-kind", "x.so is of no kind"),
    "hidden": (lambda f: (f / ".env.txt").write_text(""), "data.module-name", "'.env.txt'"),
    "a space": (lambda f: (f / "a b.py").write_text(""), "data.module-name", "'a b.py'"),
    "no Unicode": (no_unicode, "data.module-name", "cannot be a file"),
    "large": (lambda f: (f / "x.txt").write_bytes(b"x" * MAX_BYTES), "data.module-file", "exceeds"),
    "many": (
        lambda f: [(f / f"{n}.txt").write_text("") for n in range(MAX_FILES)],
        "data.module-file", "more than",
    ),
    "deep": (lambda f: (f / "/".join(["d" * 60] * 4)).mkdir(parents=True), "data.module-file",
             "too long"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_readable_source_is_refused(tmp_path: Path, case: str) -> None:
    change, code, words = REFUSED[case]
    folder = module(tmp_path / "m", {"method.py": SOURCE})
    change(folder)
    with pytest.raises(DataError, match=words) as caught:
        read_module(folder, below=tmp_path)
    assert caught.value.code == code
    assert caught.value.fix


def test_paths_to_a_module_lead_through_no_link(tmp_path: Path) -> None:
    module(tmp_path / "real", {"mine.py": SOURCE})
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "linked.py").symlink_to("real/mine.py")
    for path in (tmp_path / "linked" / "mine.py", tmp_path / "linked.py"):
        with pytest.raises(DataError, match="symbolic link"):
            read_module(path, below=tmp_path)
    for name, words in (("absent.py", "No such file"), ("real/mine.py/x", "Not a directory")):
        with pytest.raises(DataError, match=words) as caught:
            read_module(tmp_path / name, below=tmp_path)
        assert caught.value.code == "data.no-module"
    (tmp_path / "notes.txt").write_text(SOURCE)
    with pytest.raises(DataError, match=r"no \.py file"):
        read_module(tmp_path / "notes.txt", below=tmp_path)


def test_a_copy_is_readable_for_everybody_and_writable_for_nobody(tmp_path: Path) -> None:
    made = read_module(
        module(tmp_path / "m", {"method.py": SOURCE, "a/b/c.py": ""}), below=tmp_path
    )
    before = os.umask(0o077)
    try:
        made.copy_to(tmp_path / "copy")
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777
        for path in [tmp_path / "copy", *(tmp_path / "copy").rglob("*")]
    }
    assert modes == {
        "copy": 0o755, "copy/method.py": 0o444, "copy/a": 0o755, "copy/a/b": 0o755,
        "copy/a/b/c.py": 0o444,
    }  # fmt: skip


def box_with(
    folder: Path, *entries: str, act: Callable[[Mapping[str, Path]], None] = overlap
) -> Sandbox:
    """A run of `overlap`, then of these entries, whose image the fake engine plays."""
    scripts: dict[str, Script] = {"python3": does(act)}
    box = sandbox(folder, "overlap", scripts=scripts)
    (folder / "mine.py").write_text(SOURCE)
    with box.manifest.open("a", encoding="utf-8") as stream:
        stream.writelines(f"  - {entry}\n" for entry in entries)
    return box


def plan_of(box: Sandbox) -> Plan:
    manifest = load_run_manifest(box.manifest)
    return build_plan(manifest, protocol().document, load_locks(local=None), "linux/amd64")


def test_a_module_is_mounted_read_only_sealed_and_executed_again(tmp_path: Path) -> None:
    seen: list[str] = []

    def act(mounts: Mapping[str, Path]) -> None:
        seen.append((mounts["/module"] / "method.py").read_text())
        overlap(mounts)

    box = box_with(tmp_path / "box", CUSTOM, act=act)
    engine = box.engine()
    result = box.run(engine=engine)
    assert {record.outcome for record in result.outcomes} == {Outcome.OK}
    without, given = engine.specs
    assert "/module" not in {mount.target for mount in without.mounts}
    (mount,) = [mount for mount in given.mounts if mount.target == "/module"]
    assert mount.read_only
    assert not mount.source.exists()  # a copy, gone with the unit
    expected = digest(box.folder / "mine.py")
    plan = json.loads((box.out / "bundle" / "plan.json").read_bytes())
    assert plan["methods"][1]["module"] == expected
    assert "module" not in plan["methods"][0]
    assert "mine.py" not in json.dumps(plan)
    claims = json.loads((box.out / "bundle" / "claims.json").read_bytes())
    assert [method.get("module") for method in claims["methods"]] == [None, expected]
    sealed = box.out / "bundle" / "modules" / expected[7:39]
    assert sha256_label((sealed / "module.json").read_bytes()) == expected
    assert (sealed / "000-method.py").read_text() == SOURCE
    assert box.verify().faults == ()
    (box.folder / "mine.py").unlink()
    reproduction = again(box)
    assert reproduction.verdict is Verdict.IDENTICAL
    assert seen == [SOURCE, SOURCE]
    twin = box.folder / "again" / "bundle" / "modules" / expected[7:39] / "000-method.py"
    assert twin.read_text() == SOURCE


def test_an_edit_during_the_run_changes_nothing(tmp_path: Path) -> None:
    seen: list[str] = []

    def first(mounts: Mapping[str, Path]) -> None:
        (tmp_path / "box" / "mine.py").write_text("edited\n")
        overlap(mounts)

    def act(mounts: Mapping[str, Path]) -> None:
        seen.append((mounts["/module"] / "method.py").read_text())
        overlap(mounts)

    box = box_with(tmp_path / "box", CUSTOM, act=act)
    box = replace(box, scripts={**box.scripts, "overlap": does(first)})
    box.run()
    assert seen == [SOURCE]
    (sealed,) = (box.out / "bundle" / "modules").rglob("*.py")
    assert sealed.read_text() == SOURCE
    assert box.verify().faults == ()


def test_an_edit_between_plan_and_run_is_refused(tmp_path: Path) -> None:
    box = box_with(tmp_path, CUSTOM)
    plan = plan_of(box)
    (tmp_path / "mine.py").write_text("edited\n")
    with pytest.raises(DataError, match="changed while the run was planned") as caught:
        planned_modules(load_run_manifest(box.manifest), plan)
    assert caught.value.code == "data.module-changed"


def test_the_module_is_part_of_the_methods_identity_and_its_path_is_not(tmp_path: Path) -> None:
    boxes = [box_with(tmp_path / name, CUSTOM) for name in "abc"]
    (tmp_path / "b" / "mine.py").rename(tmp_path / "b" / "other.py")
    manifest = boxes[1].manifest.read_text()
    boxes[1].manifest.write_text(manifest.replace("mine.py", "./other.py"))
    (tmp_path / "c" / "mine.py").write_text(SOURCE + "# other\n")
    one, moved, changed = (plan_of(box) for box in boxes)
    assert moved.methods == one.methods
    assert moved.run_id == one.run_id
    assert changed.methods[1].method_id != one.methods[1].method_id
    assert changed.methods[0] == one.methods[0]


def test_settings_of_the_module_are_its_own(tmp_path: Path) -> None:
    own = CUSTOM.replace("}", ", config: {k: 3, text: raw}}")
    assert plan_of(box_with(tmp_path / "a", own)).methods[1].config == {"text": "raw", "k": 3}
    study = CUSTOM.replace("}", ", matrix: {k: [3, 4]}}")
    plan = plan_of(box_with(tmp_path / "b", study))
    assert [method.name for method in plan.methods] == ["overlap", "mine.3", "mine.4"]
    assert [method.config.get("k") for method in plan.methods] == [None, 3, 4]
    assert len({method.module for method in plan.methods[1:]}) == 1


UNFIT: dict[str, tuple[str, str]] = {
    CUSTOM.replace(", module: mine.py", ""): ("manifest.no-module", "names none"),
    CUSTOM.replace("custom", "levenshtein"): ("manifest.module-not-taken", "no method that takes"),
    CUSTOM.replace("method: custom", "command: [x]"): ("manifest.module-not-taken", "no method"),
    CUSTOM.replace("}", ", command: [x]}"): ("manifest.module-not-taken", "no method"),
    CUSTOM.replace("mine.py", "../mine.py"): ("manifest.module-path", "leads out"),
    CUSTOM.replace("mine.py", "a/../../mine.py"): ("manifest.module-path", "leads out"),
    CUSTOM.replace("mine.py", "/mine.py"): ("manifest.absolute-path", "one machine"),
    CUSTOM.replace("mine.py", "absent.py"): ("data.no-module", "No such file"),
    CUSTOM.replace("}", ", config: {txt: raw}}"): ("manifest.unknown-config", "did you mean"),
    CUSTOM.replace("}", ", config: {text: 3}}"): ("manifest.config-type", "text is 3"),
    "{name: mine, precomputed: rows.jsonl, module: mine.py}": (
        "manifest.precomputed", "module is for what is executed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("entry", UNFIT)
def test_what_does_not_fit_is_told_with_its_place(tmp_path: Path, entry: str) -> None:
    code, words = UNFIT[entry]
    box = box_with(tmp_path, entry)
    found: list[SealbenchError] = []
    try:
        manifest = load_run_manifest(box.manifest)
        locks = load_locks(local=None)
        _, errors = try_plan(manifest, protocol().document, locks, "linux/amd64")
        found.extend(errors)
    except ManifestError as error:
        found.append(error)
    fault = next(one for one in found if one.code == code)
    assert words in fault.message
    assert fault.fix
    assert fault.where is not None
    assert fault.where.line == 10


def test_a_module_with_a_secret_of_the_run_is_refused(tmp_path: Path) -> None:
    entry = (
        "{name: asks, image: code, method: custom, module: mine.py,"
        " secrets: {API_KEY: {env: SEALBENCH_TEST_API_KEY}}}"
    )
    box = box_with(tmp_path, entry)
    (tmp_path / "mine.py").write_text(f"KEY = 'hush-hush-hush'\n{SOURCE}")
    os.environ["SEALBENCH_TEST_API_KEY"] = "hush-hush-hush"
    engine = box.engine()
    try:
        with pytest.raises(KeyError_, match="holds the secret API_KEY") as caught:
            box.run(engine=engine)
    finally:
        del os.environ["SEALBENCH_TEST_API_KEY"]
    assert caught.value.code == "key.secret-in-module"
    assert engine.calls == []


def bundle_with_module(folder: Path) -> Sandbox:
    box = box_with(folder, CUSTOM.replace("mine.py", "m"))
    module(folder / "m", {"method.py": SOURCE, "Lib/a.py": "A = 1\n", "module.json": "{}"})
    box.run()
    assert box.verify().faults == ()
    return box


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('api_key = "0123456789"', True),
        ("PASSWORD: str = 'x'", False),
        ('settings = {"access_token": "0123456789"}', True),
        ("-----BEGIN RSA PRIVATE KEY-----", True),
        ('open("/home/somebody/words.txt")', True),
        ('token = "[A-Za-z_]\\w*"', False),
    ],
)
def test_what_looks_private_is_told_before_it_is_published(
    tmp_path: Path, line: str, found: bool
) -> None:
    box = box_with(tmp_path, CUSTOM)
    (tmp_path / "mine.py").write_text(f"{SOURCE}{line}\n{line}\n")
    report = check_manifest(box.manifest, platform="linux/amd64")
    assert report.exit_code == 0
    told = [one for one in report.findings if one.code == "manifest.private-module"]
    assert [one.message.split(" looks")[0] for one in told] == ["line 3 of method.py"] * found


def test_the_examples_are_modules_and_their_protocol_is_frozen_from_what_is_here() -> None:
    manifest = load_run_manifest(EXAMPLE)
    frozen, _ = freeze(load_freeze_manifest(BENCHMARKS / "homework-v1.yaml"), DATA_ROOT)
    assert (BENCHMARKS / "homework-v1.protocol.json").read_bytes() == canonical_bytes(frozen)
    locks = load_locks(local=None)
    plan = build_plan(manifest, frozen, locks, "linux/amd64")
    assert [method.name for method in plan.methods if method.module] == [
        "token-jaccard", "rare-tokens",
    ]  # fmt: skip
    report = check_manifest(EXAMPLE, platform="linux/amd64")
    assert [one for one in report.findings if one.code != "image.not-published"] == []


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return bundle_with_module(tmp_path_factory.mktemp("original") / "box")


def place(bundle: Path) -> Path:
    (folder,) = (bundle / "modules").iterdir()
    return folder


def listed(bundle: Path, entry: FileEntry, data: bytes) -> None:
    """Add a file to the manifest of a bundle; ``sign_again`` fills in the rest."""
    (bundle / entry.path).parent.mkdir(parents=True, exist_ok=True)
    (bundle / entry.path).write_bytes(data)
    manifest = parse_manifest((bundle / "manifest.json").read_bytes())
    files = tuple(sorted((*manifest.files, entry), key=lambda one: one.path))
    (bundle / "manifest.json").write_bytes(replace(manifest, files=files).to_bytes())


def stray(path: str) -> Callable[[Path], None]:
    entry = FileEntry(path=path, size=0, sha256="0" * 64, role=Role.MODULE, media_type="text/plain")
    return lambda bundle: listed(bundle, entry, b"more\n")


def edited(change: Callable[[Any], object], *, follow: bool = False) -> Callable[[Path], None]:
    """Edit the index, and with ``follow`` a source too, so that both agree."""

    def act(bundle: Path) -> None:
        folder = place(bundle)
        index = json.loads((folder / "module.json").read_bytes())
        change(index["files"])
        if follow:
            data = (folder / "001-method.py").read_bytes() + b"# more\n"
            (folder / "001-method.py").write_bytes(data)
            index["files"][1].update(size=len(data), sha256=sha256_label(data)[7:])
        (folder / "module.json").write_bytes(canonical_bytes(index))

    return act


def other_source(bundle: Path) -> None:
    path = place(bundle) / "001-method.py"
    path.write_bytes(path.read_bytes().replace(b"left == right", b"left != right"))


def without_module(bundle: Path) -> None:
    path = bundle / "run.yaml"
    path.write_text(path.read_text().replace(", module: m", ""))


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "another source": (other_source, "001-method.py"),
    "another helper": (lambda b: (place(b) / "000-lib-a.py").write_text("A = 2\n"), "000-lib-a.py"),
    "a source gone": (lambda b: (place(b) / "000-lib-a.py").unlink(), "000-lib-a.py"),
    "all gone": (lambda b: shutil.rmtree(b / "modules"), "module.json"),
    "index and source": (edited(lambda _: None, follow=True), "module.json"),
    "another name": (edited(lambda files: files[0].update(name="Lib/b.py")), "000-lib-b.py"),
    "another size": (edited(lambda files: files[0].update(size=7)), "000-lib-a.py"),
    "a file unlisted": (edited(lambda files: files.pop(2)), "module.json"),
    "out of order": (edited(lambda files: files.reverse()), "000-module.json"),
    "a stray file": (stray("modules/extra.py"), "modules/extra.py"),
    "a stray module": (stray("modules/" + "0" * 32 + "/000-x.py"), "000-x.py"),
    "run.yaml": (without_module, "run.yaml"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_changed_module_does_not_verify_though_it_is_signed_anew(
    original: Sandbox, tmp_path: Path, case: str
) -> None:
    shutil.copytree(original.folder, tmp_path / "copy")
    copy = replace(original, folder=tmp_path / "copy")
    change, file = TAMPERED[case]
    change(copy.out / "bundle")
    sign_again(copy.out / "bundle")
    report = copy.verify(labels=False)
    assert report.intact.holds is False
    assert any(fault.file.endswith(file) for fault in report.faults), report.faults
    assert len(report.faults) <= 2


@pytest.mark.parametrize("names", ["method.py", "a.py a.py/b.py", "__pycache__/a.py"])
def test_a_sealed_module_that_no_folder_could_have_is_refused(names: str) -> None:
    described = sorted([*names.split(), ENTRY])
    files = [ModuleFile(name=name, data=b"%d" % at) for at, name in enumerate(described)]
    module = Module(files=tuple(files))
    with pytest.raises(BundleError, match="could not lie in one folder"):
        load_sealed(module.digest, dict(module.sealed()).__getitem__)


def test_merged_runs_keep_the_modules(tmp_path: Path) -> None:
    first, second = box_with(tmp_path / "a", CUSTOM), sandbox(tmp_path / "b", "backwards")
    for box in (first, second):
        box.run()
    bundles = [box.out / "bundle" for box in (first, second)]
    request = MergeRequest(
        bundles=bundles, protocol=protocol(), data_root=DATA_ROOT, trust=TRUST,
        out=tmp_path / "merged", key=KEY,
    )  # fmt: skip
    path = merge(request).path
    expected = first.out / "bundle" / "modules"
    found = {str(p.relative_to(path / "modules")) for p in (path / "modules").rglob("*")}
    assert found == {str(p.relative_to(expected)) for p in expected.rglob("*")}
    report = verify_bundle(
        VerifyRequest(
            bundle=path,
            protocol_id=protocol().protocol_id,
            protocol=protocol(),
            trust=TRUST,
            data_root=DATA_ROOT,
        )
    )
    assert report.faults == ()
