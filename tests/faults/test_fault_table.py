"""The test of every fault that partt promises to survive; each named test exists.

Names are those of functions, in files of tests/ without `test_` and `.py`. The faults found in use were tried on
0.1.0 and on this tree with `on_version_0_1.py`: `version_0_1.json` has its table.
"""

import ast
import json
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FILES = {
    "empty": "data/broken_files: empty",
    "truncated at 1, 50, 99.9 %": "data/broken_files: truncated, truncated_parquet",
    "not ROOT (an HTML page)": "data/broken_files: web_page, not_root",
    "flipped bits": "data/broken_files: flipped_bit_in_lz4_and_zlib, flipped_bit_without_a_checksum, "
    "any_flipped_bit_is_an_error_or_keeps_the_shape",
    "no tree, two trees": "data/broken_files: no_tree, two_trees",
    "RNTuple instead of TTree": "data/root_files: rntuple",
    "a branch missing in all files, in one file": "data/broken_files: missing_branch_names_the_nearest; "
    "data/check: broken_files_and_missing_branches_are_all_named",
    "other dtype in one file": "data/broken_files: other_type_in_one_file; data/check: other_types_in_one_file",
    "jagged lengths that disagree inside a jet": "data/dataset: particle_numbers_that_disagree; "
    "data/check: lengths_that_disagree",
    "0 entries, 1 entry, chunk size +-1": "data/broken_files: few_entries, around_a_chunk_boundary; "
    "data/dataset: files_of_all_sizes",
    "glob without a match": "data/file_lists: no_match_names_the_argument",
    "same file twice, or in two classes": "data/file_lists: same_file_twice, same_file_through_links, same_url_twice",
    "no permission": "data/broken_files: no_permission",
    "a file that vanishes between epochs": "data/dataset: a_file_that_vanishes; "
    "data/broken_files: vanished_after_inspection",
}
REMOTE = {
    "server gone": "data/remote_files: xrootd_server_gone",
    "reset in the middle of a read": "data/remote_files: xrootd_reset_in_the_middle_of_a_read, "
    "web_fault_in_the_middle_of_a_read_is_tried_again, web_lasting_fault_is_an_error",
    "403 (at once)": "data/remote_files: xrootd_denies_at_once, web_denial_is_not_tried_again",
    "NAME:root://host//path": "data/remote_files: xrootd_glob_and_read; "
    "data/file_lists: urls_without_a_glob_need_no_server",
}
DOWNLOADS = {
    "a server that stalls, drips or is gone": "downloading/download: a_stalling_server_is_asked_again_and_given_up, "
    "a_dripping_server_is_given_up, a_server_that_is_gone",
    "cut connections": "downloading/download: a_cut_connection_is_continued, patience_starts_anew_with_every_block, "
    "a_partial_file_of_an_earlier_command_is_continued",
    "no ranges, or other ones": "downloading/download: a_server_without_ranges_starts_again, "
    "a_server_without_ranges_that_always_cuts_is_given_up, another_range_than_the_one_asked_for",
    "lengths that are wrong": "downloading/download: more_bytes_announced_than_sent, fewer_bytes_announced_than_sent, "
    "no_length_announced, another_size_in_the_answer_to_a_range",
    "damage": "downloading/download: a_damaged_file_is_fetched_once_more, "
    "a_partial_file_of_another_version_is_thrown_away",
    "403, 404, 429, 503, a web page": "downloading/download: a_refusal_is_final, "
    "a_busy_server_is_asked_again_when_it_says",
    "a full disk, before and during": "downloading/download: too_little_disk_is_said_before_the_download, "
    "a_full_disk_keeps_what_arrived, an_archive_needs_room_beside_its_contents",
    "signals": "downloading/download: a_signal_ends_the_wait_and_the_same_command_continues",
    "foreign files, links, pipes": "downloading/download: foreign_files_are_not_replaced, links_are_not_followed, "
    "foreign_files_where_an_archive_is_unpacked, a_pipe_in_the_place_of_the_partial_file",
    "archives as attacks": "downloading/download: archives_that_are_no_datasets",
}
VALUES = {
    "NaN and infinities": "data/dataset: nan_features_become_zero_and_are_counted, infinite_values",
    "one bad jet in a batch": "training/train_command: a_bad_jet_stops_the_run_or_is_dropped; "
    "prediction/predict_run: bad_jets_get_nan_and_a_flag; "
    "training/faults: an_input_that_is_not_finite_reaches_no_batch_norm",
    "jets with 0, 1, 128, 129 particles": "data/dataset: lengths_are_cut_and_counted; "
    "exporting/export: scores_are_torchs_for_all_lengths_and_mixes",
    "m2 < 0, E < |p|, E = 0, pT = 0, two identical particles": "model/symmetries: "
    "odd_jets_give_finite_logits_and_gradients_and_disturb_nobody, almost_empty_batches, gradients_of_the_inputs_are_finite",
}
LABELS_AND_WEIGHTS = {
    "labels: none set, two set, 0.5": "data/dataset: wrong_labels; prediction/predict_run: "
    "jets_with_wrong_labels_have_none",
    "a class with no jets": "data/dataset: a_class_without_jets_in_the_bins; faults/classes: "
    "training_names_the_classes_without_jets, one_class_is_refused_by_train_and_by_check",
    "prediction without label branches": "data/check: files_to_predict_need_no_labels",
    "negative, zero, NaN weights": "data/dataset: negative_and_zero_event_weights, negative_base_weights_are_refused, "
    "weights_must_be_finite",
    "empty reweighting bins": "data/dataset: empty_bins_get_no_weight",
}
CONFIG = {
    "unknown key, wrong type, duplicate key": "data/data_config: faults_in_inputs_and_labels, faults_in_other_sections",
    "1e-3, no": "data/data_config: numbers_with_exponents_are_numbers, faults_in_inputs_and_labels",
    "empty file": "data/data_config: files_that_are_no_config",
    "cyclic formulas, undefined name, syntax error": "data/data_config: every_formula_is_checked_at_load_time, "
    "cycles_through_custom_labels",
    "formulas as attacks": "data/expressions: attacks_are_refused_at_once, repeated_doubling_is_stopped",
}
TRAINING = {
    "lr = 1e6": "training/faults: a_learning_rate_of_a_million, a_huge_learning_rate_leaves_only_finite_numbers",
    "disk full in a checkpoint": "training/faults: a_full_disk_is_an_error_and_no_checkpoint_is_lost",
    "SIGKILL in 50 checkpoint writes": "training/faults: kills_in_checkpoint_writes_leave_a_sound_one",
    "SIGTERM in a step": "training/faults: sigterm_ends_after_the_step_with_everything_saved",
    "SIGTERM in validation": "training/fit: a_stop_in_validation_saves_and_validates_again",
    "a second signal": "training/faults: a_second_signal_ends_it_at_once",
    "resume mid-epoch for each optimizer and schedule": "training/fit: resuming_in_the_middle_of_an_epoch_is_exact",
    "resume with a changed config": "training/fit: a_changed_config_is_refused, changed_files_are_refused",
    "a dead loader worker": "training/faults: a_dead_reading_process_is_an_error; "
    "data/dataset: a_dead_worker_is_a_clear_error; data/dying_readers: before_the_first_batch",
    "two runs in one folder": "training/fit: two_runs_in_one_folder",
    "two ranks: one killed": "training/distributed: torchrun_and_a_dead_process_ends_all; "
    "faults/servers: a_dead_process_is_one_line_for_the_others_and_a_resume_goes_on; "
    "training/processes: a_killed_process_ends_all_with_one_line, a_killed_parent_is_a_request_to_stop",
    "two ranks: unequal data": "training/distributed: shares_are_equal_although_jets_do_not_divide",
}
PREDICTION = {
    "killed and rerun": "prediction/predict_faults: killed_again_and_again_it_ends_as_if_it_had_not_been",
    "disk full": "prediction/predict_faults: a_full_disk_is_an_error_and_leaves_nothing",
    "class named ../../x": "prediction/predict_faults: a_class_called_like_a_path_stays_in_the_folder",
}
MODELS = {
    "truncated": "tagger/tagger_file: a_truncated_file",
    "a flipped bit": "tagger/tagger_file: every_kind_of_flipped_bit",
    "missing keys": "tagger/tagger_file: a_missing_weight, a_header_without_a_key",
    "a pickle with an exploit": "tagger/tagger_file: a_pickle_with_an_exploit_is_refused",
    "1 TB shape": "tagger/tagger_file: a_shape_of_a_terabyte, a_network_that_would_not_fit_into_memory",
    "newer version": "tagger/tagger_file: a_newer_format",
    "ONNX against torch for lengths 0..128": "exporting/export: scores_are_torchs_for_all_lengths_and_mixes",
}
REPORT = {
    "class named <script>": "evaluation/report_in_browser: names_stay_text; "
    "evaluation/results_table: formats_escape_names",
    "one class, nothing passing a working point, all scores equal, NaN scores": "evaluation/evaluate_command: "
    "edges_have_a_sensible_result, edges_have_a_report",
    "10 million jets": "evaluation/evaluate_command: many_files_are_read_in_chunks",  # and benchmarks/bench_evaluate.py
}
SURROUNDINGS = {
    "read-only HOME": "faults/surroundings: a_home_that_cannot_be_written",
    "no terminal": "cli/screen: plain_lines_where_there_is_no_terminal",
    "20 columns": "cli/screen: a_narrow_terminal_has_the_details_below_and_loses_nothing; "
    "data/check: a_narrow_terminal",
    "ulimit -n 64 with 500 files": "data/root_files: many_files_with_few_descriptors_and_forked_readers",
}
EVERY_VERB = {
    "signals to the process group": "faults/every_verb: a_signal_to_the_process_group; "
    "simulation/run: a_signal_to_workers_that_are_starting",
    "a killed worker": "faults/every_verb: a_killed_reader; simulation/run: "
    "a_killed_worker_is_a_clear_error_and_complete_files_stay; prediction/dask: a_killed_worker_changes_nothing",
    "a full disk": "faults/every_verb: a_full_disk",
    "a read-only folder": "faults/every_verb: a_read_only_folder",
    "a closed pipe": "faults/every_verb: a_closed_pipe",
    "a lost lock": "faults/every_verb: a_kill_leaves_no_lock, a_lock_of_another_process, "
    "a_lock_that_was_removed_is_taken_again, a_run_whose_lock_was_taken_by_another_stops",
}
FOUND_IN_USE = {
    "scores of another tagger": "faults/provenance: scores_of_another_tagger_are_refused_and_both_are_named, "
    "scores_with_other_options_are_refused, scores_of_other_inputs_are_refused",
    "a predict.json of other files": "faults/provenance: a_predict_json_says_nothing_about_other_files, "
    "files_of_two_taggers_are_not_one_model, every_output_in_a_folder_keeps_its_record",
    "files that partt did not make": "faults/foreign_files: what_partt_did_not_make_is_refused, "
    "with_overwrite_a_link_is_replaced_and_its_target_is_not, an_input_is_never_replaced, "
    "training_replaces_no_file_of_the_user, random_attacks; simulation/run: files_of_others_are_not_replaced; "
    "downloading/download: foreign_files_are_not_replaced, links_are_not_followed; "
    "faults/signals: a_lock_of_somebody_else_is_left_alone",
    "SIGTERM and SIGHUP to all processes": "faults/signals: a_signal_to_the_process_group_saves_and_resumes, "
    "the_command_saves_when_its_process_group_is_signalled, torchrun_saves_when_every_process_is_signalled; "
    "training/processes: a_signal_saves_and_a_resume_is_exact",
    "| head": "faults/pipes: training_outlasts_its_reader, prediction_outlasts_its_reader, the_exit_code_of_check_stays, "
    "streams_may_be_closed_from_the_start, training_with_closed_streams",
    "standard streams on a full disk": "faults/pipes: a_full_disk_under_standard_error_ends_nothing, "
    "a_full_disk_under_standard_output_is_one_line",
    "negative, zero and huge weights, empty bins": "faults/evaluate_attacks: "
    "unusual_weights_and_bins_have_a_report, weights_without_a_sum_are_one_line",
    "classes called label_": "faults/classes: every_class_that_predict_writes_is_found",
    "infinite reference outputs": "faults/tagger_attacks: tensors",
    "outputs removed from ONNX": "faults/onnx_attacks: removed_outputs, exchanged_outputs",
    "identities beyond int32": "faults/convert_attacks: identities_beyond_int32",
    "check and train disagree": "faults/classes: one_class_is_refused_by_train_and_by_check, "
    "training_names_the_classes_without_jets, the_area_is_that_of_the_pairs_that_exist, "
    "an_empty_reweighting_class_is_refused_by_check_too",
    "pipes, devices, sparse files": "faults/bombs: pipes_as_files_of_jets, devices_and_lists; faults/yaml_attacks: "
    "a_sparse_file_and_a_pipe_are_not_read; faults/tagger_attacks: pipes_and_sparse_files, a_pipe_as_weights; "
    "faults/onnx_attacks: a_pipe, a_sparse_file; faults/convert_attacks: pipes; "
    "faults/foreign_files: files_of_a_run_that_partt_did_not_write, a_checkpoint_that_partt_did_not_write",
    "YAML": "faults/yaml_attacks: attacks, bombs_end_soon, tags_are_refused, "
    "regular_expressions_do_not_backtrack, branch_magic_that_grows, recipes_have_bounds, networks_have_bounds",
    "tagger files": "faults/tagger_attacks: attacks_on_tagger_files, headers, very_many_keys",
    "weights of weaver-core": "faults/tagger_attacks: attacks_on_weights, odd_weights",
    "ONNX files": "faults/onnx_attacks: attacks, versions_and_metadata, programs, external_data_anywhere, "
    "huge_tensors_of_few_numbers",
    "inputs of convert": "faults/convert_attacks: attacks, shapes, a_zip_bomb, rows_that_were_never_written, "
    "odd_names_of_columns",
    "files of events": "faults/event_attacks: attacks; data/input_maps: positions_that_no_event_has, "
    "branches_of_particles_that_disagree, a_collection_that_a_file_lacks, what_leads_nowhere_is_named",
    "inputs of evaluate": "faults/evaluate_attacks: a_result_or_one_clear_line, fifty_classes_end_within_seconds, "
    "sizes_are_bounded, a_file_with_a_class_name_of_100_kb",
    "entry counts and numbers of the command line": "faults/bombs: a_flipped_bit_in_the_number_of_entries, "
    "numbers_on_the_command_line, too_many_files",
    "URLs without a file system": "faults/bombs: urls_without_a_file_system",
    "out of memory": "faults/bombs: out_of_memory_is_one_line, errors_that_mean_out_of_memory",
    "changed metrics.jsonl and predict.json": "faults/surroundings: a_changed_log_is_one_line_or_is_drawn, "
    "a_changed_predict_json_is_no_traceback, evaluate_with_a_changed_predict_json",
    "terminals without Unicode, names of any bytes": "faults/surroundings: a_terminal_without_unicode, "
    "names_that_are_not_utf8, names_do_not_control_the_terminal",
    "a full disk under the cache": "faults/surroundings: a_full_disk_under_the_cache_is_a_notice",
    "cells that a spreadsheet would compute": "faults/evaluate_attacks: a_csv_cell_is_no_formula",
    "temporary files of killed commands": "faults/foreign_files: "
    "temporary_files_of_a_killed_command_are_removed_by_the_next_one, a_failed_export_leaves_nothing, "
    "a_failed_report_replaces_nothing",
    "a lock after SIGKILL": "faults/signals: after_sigkill_a_resume_starts_at_once",
    "a tagger without permission": "faults/foreign_files: a_tagger_without_permission_is_not_a_missing_one",
    "tokens of URLs": "faults/foreign_files: random_urls_lose_their_secrets, run_json_has_no_tokens, "
    "a_new_token_is_no_reason_to_fill_the_cache_again; "
    "faults/secrets: no_verb_writes_or_prints_secrets_of_urls",
    "silent, slow and busy servers": "faults/servers: a_silent_server_is_given_up, a_server_that_drips_is_given_up, "
    "a_busy_server_is_asked_again_when_it_says, a_signal_ends_a_prediction_that_waits, "
    "a_signal_ends_every_verb_that_waits_for_a_server, a_server_that_fails_is_one_line_and_a_rerun_completes",
    "a killed scheduler": "faults/servers: a_client_without_a_scheduler_has_lost_its_tasks, "
    "a_killed_scheduler_ends_a_prediction_and_a_rerun_completes, "
    "a_killed_scheduler_ends_a_simulation_and_a_rerun_completes",
    "a resume on another number of processes": "faults/servers: "
    "a_resume_with_another_number_of_processes_ends_all",
    "many small files": "faults/many_files: every_file_is_parsed_once_with_few_descriptors, "
    "more_readers_than_descriptors_is_a_clear_error, "
    "trees_of_equal_shape_are_parsed_once_and_read_as_uproot_does",
    "a damaged file before a good one": "faults/many_files: "
    "damaged_trees_give_the_same_with_and_without_a_shape",
    "a reader killed while it hands over": "data/dying_readers: between_waits, while_another_loader_reads, "
    "in_the_middle_of_a_message_that_is_waited_for, at_any_time",
    "full shared memory": "data/dying_readers: full_shared_memory",
    "memory of long trainings": "faults/memory: a_step_leaves_nothing_in_memory",
}
TABLE = {
    "files": FILES,
    "remote": REMOTE,
    "downloads": DOWNLOADS,
    "values": VALUES,
    "labels and weights": LABELS_AND_WEIGHTS,
    "config": CONFIG,
    "training": TRAINING,
    "prediction": PREDICTION,
    "models": MODELS,
    "report": REPORT,
    "surroundings": SURROUNDINGS,
    "every verb": EVERY_VERB,
    "found in use": FOUND_IN_USE,
}


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return (file, function) of "folder/file: test, test; folder/file: test"."""
    found = []
    for part in text.split(";"):
        file, names = part.split(":")
        folder, _, stem = file.strip().rpartition("/")
        found += [(f"{folder}/test_{stem}.py", f"test_{name.strip()}") for name in names.split(",")]
    return found


@cache
def functions_of(file: str) -> set[str]:
    """Return the names of the functions that a file of tests defines."""
    module = ast.parse((TESTS / file).read_text())
    return {node.name for node in module.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("fault", "text"),
    [(f"{kind}: {fault}", text) for kind, of in TABLE.items() for fault, text in of.items()],
)
def test_every_fault_has_a_test(fault, text):
    for file, name in named_tests(text):
        assert name in functions_of(file), f"{fault}: {file} has no {name}"


NUM_LINES = 17  # of faults found in use, as the project's issue counts them
ATTACKS = json.loads((TESTS / "faults" / "version_0_1.json").read_text())


@pytest.mark.parametrize("line", range(1, NUM_LINES + 1))
def test_every_fault_found_in_use_fails_on_version_0_1_only(line):
    """What the table of attacks says; each names a test that exists."""
    attacks = [row for row in ATTACKS if row["line"] == line]
    assert any(row["0.1.0"] != "holds" for row in attacks)
    assert [row["attack"] for row in attacks if row["now"] != "holds"] == []
    for row in attacks:
        for file, name in named_tests(row["test"]):
            assert name in functions_of(file), f"{row['attack']}: {file} has no {name}"


FAMILIES = {
    "YAML": {"generated configs"},
    "taggers": {"generated taggers"},
    "weights": {"generated weights"},
    "ONNX": {"generated ONNX files"},
    "inputs of convert": {"generated NPZ files", "generated HDF5 files"},
    "inputs of evaluate": {"generated inputs of evaluate"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_generators_of_attacks_find_faults_in_version_0_1(family):
    found = [row for row in ATTACKS if row["attack"] in FAMILIES[family]]
    assert any(" seeds: " in row["0.1.0"] for row in found)
    assert all(row["now"] == "holds" for row in found)
