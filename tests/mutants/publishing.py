"""Mutants of what publishes: pending slabs, the manifest, its commit, what is left; Spark's sink."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

__all__ = ["PUBLISHING"]

_PUBLICATION = "aolog/publish/publication.py"
_LEFTOVERS = "aolog/publish/leftovers.py"
_SINK = "aolog/spark/sink.py"


def _published(name: str, test: str, *edits: Edit) -> Mutant:
    file = "spark/test_sink_options" if edits[0].file == _SINK else "publish/test_publication"
    return Mutant(name, "published", (test if "::" in test else f"{file}::{test}",), edits)


PUBLISHING = (
    # --- what a task has described is durable ---
    _published("a_task_s_slab_is_not_synced",
               "test_what_a_task_describes_survives_power_loss",
               Edit("aolog/publish/pending.py",
                    "        slab.seal(clock.now_us())\n        slab.file.datasync()\n",
                    "        slab.seal(clock.now_us())\n")),
    _published("a_task_s_slab_has_no_durable_name",
               "test_what_a_task_describes_survives_power_loss",
               Edit("aolog/publish/pending.py",
                    "        self._storage.sync_directory(self._path)\n", "")),
    _published("a_task_that_fails_leaves_its_slabs",
               "test_a_task_that_fails_takes_its_files_with_it",
               Edit("aolog/publish/pending.py",
                    "        while self._names:\n", "        while False:\n")),
    # --- all of a job or nothing ---
    _published("a_slab_is_published_before_it_is_synced",
               "publish/test_crashes::test_nothing_is_left_when_all_is_done",
               Edit("aolog/publish/completion.py",
                    "        file.pwrite_all(parts, frame.offset)\n        file.datasync()\n",
                    "        file.pwrite_all(parts, frame.offset)\n")),
    _published("a_manifest_is_written_in_place",
               "test_a_failing_device_before_the_commit_publishes_nothing",
               Edit(_PUBLICATION,
                    "            storage.write_file("
                    "Inside(where, MANIFEST_NAME), [encode_manifest(manifest)])\n",
                    "            file = storage.create(Inside(where, MANIFEST_NAME))\n"
                    "            file.pwrite_all([encode_manifest(manifest)], 0)\n"
                    "            file.datasync()\n            file.close()\n"
                    "            storage.sync_directory(where)\n")),
    _published("a_manifest_replaces_the_other_before_it_is_synced",
               "publish/test_publication::test_a_manifest_is_durable_before_it_replaces_the_other",
               Edit("aolog/storage/storage.py",
                    "                        at += len(part)\n                    file.datasync()\n",
                    "                        at += len(part)\n")),
    _published("each_log_is_published_by_itself",
               "test_a_file_that_is_not_what_the_task_wrote_stops_the_whole_publication",
               Edit(_PUBLICATION,
                    "            placed.update(_placed(where, log, its, storage))\n",
                    "            placed.update(_placed(where, log, its, storage))\n"
                    "            storage.write_file(Inside(where, MANIFEST_NAME), [encode_manifest(\n"
                    "                Manifest(before.versions, kept | placed))])\n")),
    _published("any_slab_of_a_published_job_counts",
               "test_readers_find_what_is_published_under_its_pending_name",
               Edit("aolog/log/manifest.py",
                    "if (place := manifests[root].slabs.get(name)) is not None:",
                    "if (place := next((its for other, its in manifests[root].slabs.items()\n"
                    "                if job_of(other) == job_of(name)), None)) is not None:")),
    _published("a_file_is_not_held_against_its_description",
               "test_a_file_that_is_not_what_the_task_wrote_stops_the_whole_publication",
               Edit("aolog/publish/completion.py",
                    "size == slab.bytes and found[1] == slab.salt", "size == slab.bytes"),
               Edit("aolog/publish/completion.py",
                    "Walker(file, slab.salt, found[0]", "Walker(file, found[1], found[0]")),
    _published("who_looks_at_all_logs_looks_once",
               "publish/test_readers_beside::"
               "test_who_looks_steadily_at_all_logs_sees_all_of_it_or_nothing",
               Edit("aolog/log/publications.py", "            if after == before:\n", "            if True:\n")),
    _published("publications_without_end_never_wait_for_who_looks",
               "publish/test_readers_beside::"
               "test_publications_without_end_wait_for_who_looks",
               Edit("aolog/log/publications.py", "held.enter_context(lock_directory(root, storage))", "pass")),
    _published("who_looks_at_a_log_waits_for_its_writer",
               "publish/test_readers_beside::"
               "test_publications_without_end_wait_for_who_looks",
               Edit("aolog/log/publications.py", " if not is_log(root, storage)]", "]")),
    # --- once ---
    _published("a_transaction_is_not_recognised",
               "test_a_transaction_is_committed_once",
               Edit(_PUBLICATION, "before.has(transaction)", "False")),
    _published("an_older_transaction_is_not_recognised",
               "test_a_manifest_is_read_as_it_was_written",
               Edit("aolog/log/manifest.py",
                    "self.versions.get(transaction.id, -1) >= transaction.version",
                    "self.versions.get(transaction.id, -1) == transaction.version")),
    _published("transactions_of_others_are_forgotten",
               "test_transactions_of_others_are_kept",
               Edit(_PUBLICATION, "versions = dict(before.versions)", "versions = {}")),
    _published("a_transaction_of_nothing_is_not_committed",
               "test_a_transaction_of_nothing_is_committed_too",
               Edit(_PUBLICATION, "        if manifest != before:\n", "        if slabs:\n")),
    # --- beside others ---
    _published("a_publication_takes_no_writers_lock",
               "test_beside_a_live_writer_nothing_is_touched",
               Edit(_PUBLICATION,
                    "                held.callback(_lock_patiently(log_path(where, log), storage).close)\n",
                    "                pass\n")),
    _published("two_publications_go_on_at_once",
               "test_a_publication_waits_for_another",
               Edit("aolog/log/lock.py", "        directory.lock()\n", "        pass\n")),
    _published("a_live_writer_is_met_after_the_job",
               "test_a_live_writer_is_met_before_a_task_is_begun",
               Edit(_SINK, "    check_free(read.root, [] if routed else [read.log], mode=read.mode)\n", "")),
    # --- a publication that was killed ---
    _published("a_writer_does_not_roll_forward",
               "test_a_reader_goes_on_over_the_renames",
               Edit("aolog/write/rolling.py",
                    "            if log.published:\n", "            if False:\n")),
    _published("a_publication_does_not_roll_forward",
               "test_a_manifest_goes_on_naming_what_it_cannot_rename",
               Edit(_PUBLICATION,
                    "                roll_forward(opened)\n                kept |=",
                    "                kept |=")),
    _published("a_rename_may_outlive_its_manifest",
               "publish/test_crashes::test_what_is_renamed_is_not_taken_back_in_the_other_logs",
               Edit("aolog/log/publications.py",
                    "    sync_roots(log.path, log.published.values(), storage)", "    pass")),
    _published("a_log_that_is_away_is_forgotten",
               "test_a_manifest_goes_on_naming_slabs_of_a_log_that_is_away",
               Edit(_PUBLICATION,
                    "            kept |= its\n            continue\n", "            continue\n")),
    # --- what is left ---
    _published("an_abort_takes_what_was_published",
               "test_an_abort_behind_the_commit_takes_nothing",
               Edit(_LEFTOVERS,
                    "        published = read_manifest(where, storage).slabs.keys()\n",
                    "        published = set[str]()\n")),
    _published("an_abort_beside_a_publication",
               "test_a_live_writer_of_the_root_is_an_error_and_not_waited_for_long",
               Edit(_LEFTOVERS, "if not directory.try_lock():", "if directory.try_lock() is None:")),
    _published("leftovers_of_a_repeated_batch_stay",
               "test_a_transaction_is_committed_once",
               Edit(_PUBLICATION,
                    "            for log in by_log:\n                sweep(",
                    "            for log in ():\n                sweep(")),
    _published("what_the_manifest_names_is_swept",
               "test_what_the_manifest_names_is_never_swept",
               Edit(_LEFTOVERS, "and name not in kept and", "and")),
    _published("another_root_s_slabs_are_swept",
               "test_what_another_root_published_is_not_swept",
               Edit(_LEFTOVERS, " and root_of(path, name) == root:", ":")),
    _published("a_job_that_still_writes_is_swept",
               "test_a_job_that_still_writes_keeps_its_old_files",
               Edit(_LEFTOVERS, "its == job or all(", "its == job or any(")),
    # --- Spark's sink ---
    _published("overwriting_appends",
               "test_what_would_replace_is_refused",
               Edit(_SINK, "    if overwrite:\n", "    if False:\n")),
    _published("an_abort_stumbles_over_a_task_that_failed",
               "test_a_writer_is_pickled_and_commits_what_another_copy_wrote",
               Edit(_SINK,
                    "[message for message in messages if isinstance(message, Written)]",
                    "list(messages)")),
    _published("messages_of_another_batch_are_committed",
               "test_a_batch_is_committed_with_its_own_messages_and_once",
               Edit(_SINK,
                    "len(queries) > 1 or batches != {batchId}", "len(queries) > 1")),
    _published("a_stream_s_batches_are_no_transactions",
               "test_a_batch_is_committed_with_its_own_messages_and_once",
               Edit(_SINK, "_job_of(query), written, transaction)", "_job_of(query), written, None)")),
)  # fmt: skip  # a table
