"""Which tests prove each clause of the promise (aolog/docs/explanation/guarantees.md). Data only.

A test is `file::test` of tests/**/test_file.py. Mutants name their clause themselves.
"""

__all__ = ["PROOFS"]

PROOFS = {
    "durable": """
        writer::test_what_is_asked_of_the_storage_to_begin_sync_and_seal_a_slab
        commit::test_sync_really_is_fdatasync_of_the_file_and_fsync_of_the_directory
        commit::test_threads_that_sync_across_many_slabs_are_never_told_too_early
        killed_creators::test_a_log_whose_creator_was_killed_survives_the_sync_of_the_next
        testing::test_storage_finishes_short_writes_and_reads_and_interrupted_calls
        exploration::test_the_promise_holds_in_every_state_that_a_crash_leaves
        kill::test_a_writer_is_killed
        power_cut::test_what_was_synced_survives_a_power_cut
    """,
    "atomic": """
        writer::test_append_many_is_one_frame_whatever_its_size
        concurrency::test_append_many_is_not_torn_apart_by_other_threads
        arrow::test_a_batch_is_one_frame
    """,
    "bytes": """
        frame::test_every_single_flipped_bit_of_a_frame_is_refused
        walk::test_a_whole_frame_of_the_slab_stored_as_a_payload_is_never_returned
        walk::test_what_lies_beyond_the_limit_is_never_read
        foreign_slab::test_a_slab_of_another_log_is_a_gap_however_one_reads
        foreign_slab::test_every_combination_of_slabs_and_cursors_lands_on_its_row
        damage_matrix::test_damage_costs_what_it_touches_however_one_reads
        columns::test_nonsense_under_a_right_hash_is_malformed
        fuzz::test_a_target_runs_its_small_budget_and_finds_nothing
    """,
    "addresses": """
        recovery_table::test_an_epoch_begins_above_the_file_and_above_every_cursor
        recovery_table::test_an_epoch_begins_above_the_reach_unless_the_page_cache_is_the_same
        opening::test_a_copied_log_is_copied_and_never_gives_an_address_twice
        opening::test_an_inode_of_another_generation_is_another_file
        opening::test_a_restore_in_place_is_recognised_by_a_cursor_past_the_end_and_by_nothing_else
        regressions::test_two_copies_of_a_log_do_not_give_out_the_same_addresses
        opening::test_a_new_epoch_is_told_in_a_warning
        exploration::test_the_promise_holds_in_every_state_that_a_crash_leaves
    """,
    "damage": """
        gaps::test_gaps_are_exact_and_every_other_record_is_read
        walk::test_whatever_is_overwritten_every_untouched_frame_is_delivered
        damage_matrix::test_damage_costs_what_it_touches_however_one_reads
        golden::test_every_slab_without_its_two_header_copies_is_read_by_its_seal
        fail_stop::test_a_slab_is_not_made_anew_while_a_follower_may_have_it_open
    """,
    "gaps": """
        opening::test_a_last_slab_without_header_is_header_lost_and_kept_whole
        gaps::test_gaps_are_exact_and_every_other_record_is_read
        gaps::test_the_oracle_of_the_matrix_says_what_this_table_says
        damage_matrix::test_damage_costs_what_it_touches_however_one_reads
    """,
    "lengths": """
        frame::test_every_single_flipped_bit_of_a_frame_ends_a_run_before_it
        damage_matrix::test_no_length_allocates_what_is_not_there
        codec::test_a_body_takes_at_most_twice_what_it_holds_while_it_is_unpacked
        slab::test_an_index_that_does_not_fit_its_body_is_none
        columns::test_a_count_of_four_billion_allocates_nothing
    """,
    "kept": """
        opening::test_recovery_takes_the_steps_that_it_says
        opening::test_a_torn_frame_is_unsealed_torn_cut_copied_and_told
        regressions::test_what_was_kept_aside_is_not_overwritten_by_what_is_cut_at_the_same_place
        recovery_table::test_what_is_cut_is_copied_aside_unless_it_is_zeros
    """,
    "recovery": """
        recovery_table::test_only_bytes_after_the_last_intact_frame_are_ever_cut
        opening::test_a_hole_before_the_last_intact_frame_is_kept
        queuefka::test_a_tail_that_is_searched_in_vain_up_to_the_bound_is_not_cut
        exploration::test_the_promise_holds_in_every_state_that_a_crash_leaves
    """,
    "ends": """
        walk::test_every_second_frame_damaged_takes_time_linear_in_the_bytes
        damage_matrix::test_bytes_read_grow_as_the_log_does
        opening::test_recovery_that_dies_anywhere_is_repeated_with_the_same_outcome
        walk::test_a_search_in_format_1_ends_at_its_bound_and_cuts_nothing
    """,
    "fsync": """
        storage_errors::test_after_a_failed_fsync_appends_are_refused_and_the_durable_address_is_named
        storage_errors::test_a_failed_fsync_of_the_directory_ends_the_writer
        storage_errors::test_no_room_at_a_sync_is_a_failed_sync
        testing::test_a_log_on_a_sync_that_lies_refuses_and_keeps_what_it_said_was_durable
        lying_sync::test_a_lost_sync_is_made_up_for_by_the_next_writer
        lost_slab::test_a_sync_into_a_file_that_left_the_log_is_refused_and_says_what_happened
        lost_slab::test_a_file_that_was_cut_and_has_grown_again_is_noticed
    """,
    "full": """
        storage_errors::test_a_full_disk_loses_nothing_and_appends_resume_when_there_is_room
        commit::test_a_full_disk_is_told_to_each_that_waits_and_costs_none_of_them_its_record
        storage_errors::test_a_write_that_was_cut_short_is_repeated_over_what_it_left
        storage_errors::test_a_log_on_a_full_disk_is_drained_and_frees_itself
    """,
    "resume": """
        cursor::test_a_reader_goes_on_where_the_cursor_stands
        cursor::test_a_commit_is_durable_and_the_log_before_it
        cursor::test_a_commit_in_the_next_slab_makes_that_one_durable_first
        cursor::test_a_log_that_took_another_course_below_the_cursor_is_told
        cursor::test_a_cursor_of_another_log_is_refused
        retention::test_when_full_prune_lets_the_oldest_go_and_readers_are_told_exactly
        killed_creators::test_a_cursor_whose_creator_was_killed_survives_the_commit_of_the_next
        exploration::test_the_promise_holds_in_every_state_that_a_crash_leaves
        kill::test_a_reader_that_commits_is_killed_and_resumes_exactly
        read_fail_stop::test_a_call_that_met_a_storage_error_is_repeated_and_loses_nothing
        read_fail_stop::test_a_call_that_was_interrupted_at_any_line_loses_nothing_or_the_reader_refuses
    """,
    "commit": """
        cursor::test_a_commit_makes_a_removed_file_anew_with_its_lock_and_warns
        cursor::test_a_commit_into_a_replaced_file_is_refused_and_leaves_what_is_there
        cursor::test_a_commit_on_a_full_simulated_disk_needs_no_room
        cursor::test_commits_take_turns_so_that_the_one_before_stays
        damage_cursor::test_a_commit_that_came_in_part_is_the_one_before
    """,
    "pruning": """
        retention::test_a_cursor_is_durable_before_the_slab_that_it_frees_goes
        retention::test_age_and_count_take_nothing_that_a_cursor_needs
        retention::test_the_writer_warns_of_each_unread_record_that_it_prunes
        retention::test_lag_and_the_list_of_cursors_tell_what_is_left_from_what_is_gone
        retention::test_a_cursor_that_cannot_be_read_frees_nothing_and_is_named_once
        retention::test_pruning_that_dies_anywhere_leaves_no_hole
        kill::test_a_pruner_is_killed_and_takes_nothing_that_a_cursor_needs
    """,
    "one writer": """
        opening::test_a_second_writer_is_refused_in_the_same_process
        opening::test_a_second_writer_is_refused_in_another_process
        fork::test_every_call_in_the_child_is_refused_and_changes_nothing
        fork::test_the_lock_goes_with_the_parent_though_children_live
        concurrency::test_readers_never_disturb_a_writer
    """,
    "links": """
        links::test_append_to_a_log_whose_last_slab_is_a_link_changes_nothing
        links::test_no_cursor_is_read_written_or_deleted_through_a_link
        links::test_recovery_keeps_nothing_aside_through_a_link
        links::test_prune_makes_no_lock_through_a_link
        root::test_what_changes_a_log_is_refused_with_the_command_to_use
        root::test_whatever_is_made_or_removed_inside_is_refused_by_storage_itself
    """,
    "verify": """
        verify::test_a_damaged_seal_is_named_where_it_must_have_been
        verify::test_a_seal_that_says_something_else_is_named
        verify::test_an_index_that_leads_elsewhere_is_named
        gaps::test_verify_counts_the_same
        verify::test_a_gap_that_grew_is_reported
    """,
    "repair": """
        repair::test_a_copy_has_the_same_records_at_the_same_addresses_and_the_same_gaps
        repair::test_cursors_of_a_copy_resume_where_those_of_the_log_do
        repair::test_each_file_of_a_copy_is_durable_before_it_has_its_name
        repair::test_a_copy_that_does_not_read_as_the_log_is_removed
        repair::test_killed_at_every_operation_a_copy_is_complete_or_absent
        repair::test_a_copy_beside_a_live_writer_is_a_consistent_prefix
        repair::test_bytes_that_a_writer_is_writing_are_no_damage_of_a_copy
    """,
    "published": """
        readers_beside::test_who_looks_steadily_at_all_logs_sees_all_of_it_or_nothing
        crashes::test_nothing_is_left_when_all_is_done
        publication::test_a_transaction_is_committed_once
        publication::test_what_a_task_describes_survives_power_loss
        publication::test_an_abort_behind_the_commit_takes_nothing
        publication::test_what_the_manifest_names_is_never_swept
        sink_options::test_a_batch_is_committed_with_its_own_messages_and_once
    """,
    "format 1": """
        gaps::test_an_altered_payload_of_format_1_costs_its_record
        gaps::test_an_altered_length_of_format_1_costs_the_rest_of_its_slab
        writer::test_format_1_refuses_and_names_what_it_has_no_place_for
        queuefka::test_a_golden_is_written_anew_byte_for_byte
    """,
    "acknowledged": """
        engine::test_the_cursor_is_the_least_address_that_no_lane_has_acknowledged
        engine_model::test_walks_at_random_keep_every_promise
        engine_model::TestTheEngineAgainstADestination
        kafka_model::test_topics_that_are_made_anew_as_well_cost_no_record
        kafka_model::test_retention_and_compaction_of_what_arrived_cost_no_record
        deduplicate::test_what_is_there_in_the_logs_order_has_arrived_up_to_the_first_that_is_missing
        committer::test_a_commit_is_the_cursor_then_checkpoints_then_pruning_and_none_is_repeated
        committer::test_a_commit_that_fails_ends_the_forwarder_and_the_cursor_stays
        forwarder_kafka::test_kills_lose_nothing_repeat_nothing_and_keep_the_order
        forwarder_kafka::test_after_the_refusal_of_a_lanes_first_record_no_later_one_arrives
        config::test_a_client_that_lacks_what_the_guarantees_rest_on_is_refused
    """,
    "order": """
        batch_planner::test_every_record_is_answered_for_or_left_or_poison_exactly_once
        batch_planner::test_records_that_were_set_aside_are_skipped_and_earlier_records_of_a_lane_come_first
        engine_model::TestTheEngineAgainstADestination
        partitioner::test_each_record_goes_where_its_key_its_address_or_the_rule_says
        three_nodes::test_a_leader_is_killed_and_nothing_is_lost_or_repeated
    """,
    "outage": """
        engine::test_the_engine_follows_its_table
        transactions::test_each_row_of_the_table_happens
        engine_poison::test_a_refusal_that_teaches_nothing_is_retried_after_growing_pauses
        forwarder_kafka::test_a_frozen_broker_is_waited_for_and_its_records_are_not_sent_again
        forwarder_kafka::test_a_broker_that_crashes_and_a_bridge_killed_meanwhile_lose_and_repeat_nothing
        exactly_once_kafka::test_a_broker_that_crashes_restarts_and_freezes_is_waited_for
        lanes::test_a_leader_that_is_down_delays_only_its_own_partitions
    """,
    "not again": """
        kafka_model::test_topics_that_grow_and_messages_that_are_copied_cost_no_record_and_no_repeat
        kafka_model::test_without_the_notes_beside_the_cursor_nothing_is_repeated_if_no_topic_grows
        deduplicate::test_a_record_is_recognised_by_its_key_and_value_of_which_none_is_not_empty
        forwarder_mock::test_records_that_arrived_after_the_last_commit_are_not_sent_again
        read_back_kafka::test_partitions_that_are_added_after_a_kill_cost_no_record_and_no_repeat
    """,
    "once": """
        transactions::TestTransactionsAgainstACluster
        transactions::test_a_commit_whose_answer_is_lost_is_asked_for_again_and_counts_once
        transactions::test_an_end_that_was_requested_twice_ends_no_later_transaction
        exactly_once_mock::test_the_cursor_is_the_last_record_of_each_transaction
        exactly_once_mock::test_a_cluster_that_shows_aborted_records_is_refused_before_anything_of_the_log_is_sent
        exactly_once_kafka::test_kills_lose_nothing_repeat_nothing_and_keep_the_order
        late_kafka::test_an_end_that_arrives_late_ends_no_other_transaction
        left_open_kafka::test_a_record_and_a_cursor_record_that_hang_are_aborted_and_do_not_arrive_twice
    """,
    "poison": """
        kafka_model::test_topics_that_grow_and_messages_that_are_copied_cost_no_record_and_no_repeat
        exactly_once_mock::test_no_record_follows_poison_that_is_not_set_aside_yet
        poison::test_a_dead_letter_keeps_the_record_its_origin_and_the_reason
        poison::test_a_crash_between_dead_letter_and_cursor_leaves_one_copy_and_no_delivery
        poison::test_a_full_disk_keeps_the_dead_letter_waiting_and_makes_no_second_copy
        poison_kafka::test_poison_that_the_cluster_does_not_name_is_found_in_seconds
        batch_planner::test_a_lane_stops_before_a_refusal_that_is_not_the_records_fault_with_every_policy
        error_table::test_only_what_the_record_itself_is_to_blame_for_is_poison
    """,
    "loud": """
        log_source::test_a_gap_is_passed_counted_and_logged
        damaged_log::test_a_gap_is_passed_counted_and_logged_and_a_drain_over_it_has_its_own_exit_status
        log_losses::test_a_bridge_that_never_reached_its_cluster_counts_pruned_records
        log_losses::test_what_a_bridge_lost_is_shown_after_it_ended_and_pruned
        poison::test_a_dropped_record_is_counted_logged_and_passed
        deduplicate::test_what_did_not_count_is_named_by_its_first
    """,
    "space": """
        damaged_log::test_with_prune_slabs_are_deleted_once_the_durable_cursor_has_passed_them
        damaged_log::test_from_its_start_on_a_bridge_protects_records_after_its_cursor
        log_losses::test_the_bridge_s_own_pruning_takes_nothing_that_another_cursor_needs
        checkpoints::test_on_a_full_disk_larger_checkpoints_name_the_room_they_need_and_the_old_ones_stay
        full_disk_kafka::test_a_log_on_a_full_disk_is_drained_and_pruned_after_a_first_start
        engine::test_records_of_held_lanes_are_counted_apart_and_bounded_by_closing_the_connection
    """,
}
"""Tests by clause, one a line."""
