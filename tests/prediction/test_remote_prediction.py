"""Files behind root://, from a real server."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import partt
from conftest import FIXTURES
from prediction_jobs import columns, make_tagger
from xrootd_server import xrootd_serving

pytestmark = pytest.mark.server


def test_files_of_an_xrootd_server(xrootd_program, tmp_path):
    tagger, fixture = make_tagger(), FIXTURES / "jetclass_vector_layout.root"
    partt.predict(tagger, fixture, tmp_path / "local.root")
    with tempfile.TemporaryDirectory(prefix="partt_remote_") as name:  # unlike pytest's, others may enter it
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "jets").mkdir()
        for copy in ("a.root", "b.root"):
            shutil.copy(fixture, folder / "jets" / copy)
        with xrootd_serving(xrootd_program, folder) as (base, _):
            result = partt.predict(tagger, f"{base}/jets/*.root", tmp_path / "out")
            again = partt.predict(tagger, f"{base}/jets/*.root", tmp_path / "out")
    assert result.balance.scored == 60
    assert [output.was_complete for output in again.outputs] == [True, True]
    expected = columns(tmp_path / "local.root")
    for copy in ("a.root", "b.root"):
        found = columns(tmp_path / "out" / copy)
        for column in ("score_Hbb", "label_Hbb", "jet_pt", "source_entry"):
            np.testing.assert_array_equal(found[column], expected[column])
