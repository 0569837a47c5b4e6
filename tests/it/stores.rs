//! Runs the conformance suite over every store, through one connection and through two.

mod differential;
mod followers;
mod layouts;
mod mongo;
mod rekey;
mod shards;
mod sqlite;

use std::{sync::Arc, time::Duration};

use encryption::{Key, Keyring, protect};
use shared::{
    execution::ExecutionState,
    id::Seq,
    request::Request,
    store::{
        Append, AppendError, ExecutionFilter, ExecutionHead, LabelFilter, Page, RequestFilter,
        Store, memory::Memory,
    },
};
use tests::{
    conformance::{self, StorePair, at, execution, head, request, request_id, some_events},
    faulty::{Dice, FaultRates, FaultyStore},
};

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
                    a_blob_of_concurrent_calls_keeps_their_tokens,
                    an_audit_entry_is_stored_once_and_unchanged,
                    audit_entries_are_found_by_each_filter,
                    audit_pages_have_no_gaps_and_no_repeats,
                    a_start_is_stored_with_its_audit_entry,
                    a_command_is_stored_with_its_audit_entry,
                    the_oldest_audit_entries_are_removed_in_parts,
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
                    a_record_is_replaced_while_it_has_the_value_that_was_read,
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
                    the_forks_of_an_execution_are_found,
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
                    pages_from_the_end_have_no_gaps_and_no_repeats,
                    a_page_stays_between_its_cursors,
                    plans_are_found_by_request_and_words,
                    records_are_listed_by_name_in_both_directions,
                    readers_during_pruning_get_no_error,
                    requests_are_found_by_words_time_and_state,
                    requests_without_a_plan_are_found_as_failed,
                    the_first_vector_of_a_text_stays,
                    the_next_due_time_is_the_earliest,
                    permits_of_a_lost_worker_are_free_after_its_lease,
                    due_executions_can_be_paged_through,
                    due_executions_are_listed_by_priority_and_time,
                    tokens_take_turns_in_a_list_of_due_executions,
                    tokens_without_due_executions_leave_their_places,
                    the_executions_and_bytes_of_a_token_are_counted,
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
    on_an_encrypted_memory_store: crate::stores::encrypted_memory_store,
    on_an_encrypted_sqlite_store: crate::stores::sqlite::open_encrypted,
    on_sqlite_opened_twice: crate::stores::sqlite::open_twice,
    on_mongodb: crate::stores::mongo::open_once,
    on_mongodb_opened_twice: crate::stores::mongo::open_twice,
    on_sqlite_with_two_layouts: crate::stores::sqlite::open_with_two_layouts,
    on_mongodb_with_two_layouts: crate::stores::mongo::open_with_two_layouts,
}

/// Promises about data that the present store layout added. A node that uses the previous layout
/// does not keep these promises.
mod of_this_layout {
    mod on_the_memory_store {
        promises! {
            crate::stores::memory_store:
            a_request_keeps_its_labels,
            a_token_finds_its_own,
            a_token_with_many_requests_finds_its_plans,
        }
    }
    mod on_sqlite {
        promises! {
            crate::stores::sqlite::open_twice:
            a_request_keeps_its_labels,
            a_token_finds_its_own,
            a_token_with_many_requests_finds_its_plans,
        }
    }
    mod on_mongodb {
        promises! {
            crate::stores::mongo::open_twice:
            a_request_keeps_its_labels,
            a_token_finds_its_own,
            a_token_with_many_requests_finds_its_plans,
        }
    }
}

/// Returns a memory store whose operations sometimes stall, but do not fail. So it must keep all
/// promises.
async fn slow_memory_store() -> StorePair {
    let max_stall = Duration::from_millis(2);
    let rates = FaultRates {
        failures_before: 0,
        failures_after: 0,
        failures_before_inbox: 0,
        stalls: 100,
        max_stall,
    };
    let store = FaultyStore::new(Arc::new(Memory::new()), Dice::new(1), rates);
    StorePair::new(Arc::new(store), ())
}

fn keyring() -> Keyring {
    let key = Key::parse(&format!("{}=", "A".repeat(43))).unwrap();
    Keyring::new(vec![("k1".to_owned(), Some(key))], "k1", false).unwrap()
}

async fn encrypted_memory_store() -> StorePair {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    StorePair::new(protect(store, Some(keyring())).await.unwrap(), ())
}

async fn memory_store() -> StorePair {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    StorePair::new(store, ())
}

/// Two nodes that use the previous store layout and a node that uses the present layout work on the
/// same requests and executions. The node `restarted` uses the previous layout, and started after
/// the store had the present layout. The request 1 is stored.
async fn check_neighbours(old: &dyn Store, new: &dyn Store, restarted: &dyn Store) {
    let labels = [("team".to_owned(), "blue".to_owned())];
    let labelled = Request { labels: labels.clone().into(), ..request(2, "new", 2) };
    new.put_request(&labelled).await.unwrap();
    restarted.put_request(&request(3, "restarted", 3)).await.unwrap();
    assert_eq!(new.request(request_id(2)).await.unwrap(), Some(labelled.clone()));
    let of_old = request(2, "new", 2);
    assert_eq!(old.request(request_id(2)).await.unwrap(), Some(of_old.clone()));
    let page = Page::first_items(10);
    for (store, second) in [(old, of_old.clone()), (restarted, of_old), (new, labelled)] {
        let listing = store.list_requests(&RequestFilter::default(), &page).await.unwrap();
        let found: Vec<_> = listing.items.into_iter().map(|(_, request)| request).collect();
        assert_eq!(found, [request(3, "restarted", 3), second, request(1, "old", 1)]);
    }
    // Each node in turn writes a head of the same execution.
    let head = |seq, state: ExecutionState| ExecutionHead {
        labels: labels.clone().into(),
        state,
        finished_at: state.is_finished().then(|| at(5)),
        ..head(1, seq)
    };
    let append = |after, state| Append {
        head: Some(head(after + 1, state)),
        ..some_events(execution(1), after, 1)
    };
    for (store, after) in [(old, 0), (new, 1), (restarted, 2)] {
        store.append(append(after, ExecutionState::InProgress)).await.unwrap();
    }
    assert_eq!(old.append(append(2, ExecutionState::InProgress)).await, Err(AppendError::Conflict));
    old.append(append(3, ExecutionState::Completed)).await.unwrap();
    let team = LabelFilter { key: "team".to_owned(), value: None };
    let filter = ExecutionFilter { labels: vec![team], ..ExecutionFilter::default() };
    for store in [old, new, restarted] {
        assert_eq!(store.read(execution(1), Seq(0)).await.unwrap().len(), 4);
        assert_eq!(
            store.head(execution(1)).await.unwrap(),
            Some(head(4, ExecutionState::Completed))
        );
        assert_eq!(store.count_heads(&filter).await, Ok(1));
    }
}
