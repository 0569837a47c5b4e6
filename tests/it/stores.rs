//! Runs the conformance suite over every store, through one connection and through two.

mod differential;
mod followers;
mod mongo;
mod shards;
mod sqlite;

use std::{sync::Arc, time::Duration};

use shared::store::{Store, memory::Memory};
use tests::{
    conformance::{self, StorePair},
    faulty::{Dice, FaultRates, FaultyStore},
};

/// Defines a test of each promise, over stores that `$pair` creates.
macro_rules! promises {
    ($pair:path: $($promise:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                crate::stores::conformance::$promise($pair().await).await;
            }
        )+
    };
}

/// Defines a module of tests for each kind of store.
macro_rules! stores {
    ($($module:ident: $pair:path),+ $(,)?) => {
        $(
            mod $module {
                promises! {
                    $pair:
                    a_blob_is_removed_with_its_execution,
                    counts_follow_the_executions,
                    the_count_of_a_list_is_its_length,
                    a_released_permit_sends_a_hint,
                    a_head_without_a_log_is_not_stored,
                    a_holder_that_asks_again_is_counted_once,
                    a_key_stays_with_the_first_execution,
                    an_append_larger_than_a_document_is_stored_whole,
                    a_plan_of_any_size_is_stored_whole,
                    executions_are_orphans_after_the_lease_expired,
                    a_concurrency_limit_holds_for_all_nodes,
                    the_first_append_must_start_a_log,
                    a_long_log_is_read_in_bounded_parts,
                    the_list_of_all_inboxes_is_bounded,
                    a_saved_name_means_the_last_plan,
                    an_empty_page_says_whether_there_are_items,
                    saved_and_used_plans_are_not_pruned,
                    a_plan_is_stored_once,
                    an_exhausted_rate_says_when_to_ask_again,
                    a_read_can_start_at_any_position,
                    invalid_and_oversized_records_are_refused,
                    a_conditional_write_never_overwrites_a_newer_record,
                    a_record_is_stored_unchanged,
                    the_write_condition_decides_which_record_stays,
                    a_rejected_append_does_not_affect_others_of_its_batch,
                    a_request_is_stored_once,
                    executions_of_a_removed_worker_are_orphans_at_once,
                    the_revision_changes_with_shared_records_only,
                    a_working_store_is_writable,
                    transcript_entries_are_appended_in_order,
                    invalid_and_oversized_vectors_are_refused,
                    vectors_are_stored_unchanged_by_model,
                    exactly_one_writer_gets_a_plan_version,
                    a_holder_gets_all_its_limits_or_none,
                    an_append_succeeds_only_at_the_end_of_the_log,
                    an_event_larger_than_a_document_is_refused,
                    a_full_inbox_refuses_commands,
                    a_cached_output_is_found_until_it_expires,
                    commands_are_listed_in_order_until_discarded,
                    simultaneous_record_changes_all_count,
                    usage_adds_the_counts_of_all_nodes,
                    exactly_one_writer_gets_each_position,
                    executions_are_found_by_each_filter,
                    executions_are_found_by_labels_errors_and_ids,
                    executions_that_need_a_person_are_found_with_their_requests,
                    simultaneous_appends_to_many_logs_are_independent,
                    head_and_inbox_change_atomically_with_the_log,
                    an_older_head_never_replaces_a_newer_one,
                    changes_send_hints_to_subscribers,
                    json_values_are_stored_unchanged,
                    a_due_list_reads_a_limited_number_of_priorities,
                    many_vectors_are_stored_and_read,
                    pruning_removes_the_oldest_in_parts,
                    saved_plans_are_listed_until_they_are_removed,
                    finished_executions_are_listed_by_end_time,
                    the_longest_due_are_listed_whatever_their_priority,
                    only_old_calls_are_pruned_from_records,
                    exactly_one_writer_creates_a_record,
                    pages_have_no_gaps_and_no_repeats,
                    plans_are_found_by_request_and_words,
                    records_are_listed_by_name_in_both_directions,
                    readers_during_pruning_see_whole_logs_or_none,
                    requests_are_found_by_words_time_and_state,
                    requests_without_a_plan_are_found_as_failed,
                    the_first_vector_of_a_text_stays,
                    the_next_due_time_is_the_earliest,
                    permits_of_a_lost_worker_are_free_after_its_lease,
                    due_executions_can_be_paged_through,
                    due_executions_are_listed_by_priority_and_time,
                    old_finished_executions_are_pruned_with_their_documents,
                    given_objects_are_removed_unless_they_are_needed,
                    a_finished_execution_with_an_owner_can_be_an_orphan,
                    unfinished_executions_are_never_pruned,
                    workers_are_listed_until_their_lease_expires,
                }
            }
        )+
    };
}

stores! {
    on_a_slow_memory_store: crate::stores::slow_memory_store,
    on_the_memory_store: crate::stores::memory_store,
    on_sqlite: crate::stores::sqlite::open_once,
    on_sqlite_opened_twice: crate::stores::sqlite::open_twice,
    on_mongodb: crate::stores::mongo::open_once,
    on_mongodb_opened_twice: crate::stores::mongo::open_twice,
}

/// A memory store whose operations only stall. All promises must hold.
async fn slow_memory_store() -> StorePair {
    let stall = Duration::from_millis(2);
    let rates =
        FaultRates { fails_before: 0, fails_after: 0, fails_before_inbox: 0, stalls: 100, stall };
    let store = FaultyStore::new(Arc::new(Memory::new()), Dice::new(1), rates);
    StorePair::new(Arc::new(store), ())
}

async fn memory_store() -> StorePair {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    StorePair::new(store, ())
}
