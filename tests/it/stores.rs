//! Every store keeps every promise of the suite, alone and shared.

mod differential;
mod mongo;
mod shards;
mod sqlite;
mod tail;

use std::{sync::Arc, time::Duration};

use shared::store::{Store, memory::Memory};
use tests::{
    conformance::{self, World},
    faulty::{Dice, Faulty, Malice},
};

/// Makes a test of every promise for the worlds that a function makes.
macro_rules! promises {
    ($world:path: $($promise:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                crate::stores::conformance::$promise($world().await).await;
            }
        )+
    };
}

/// Makes a module of tests for every kind of store.
macro_rules! stores {
    ($($module:ident: $world:path),+ $(,)?) => {
        $(
            mod $module {
                promises! {
                    $world:
                    a_blob_goes_with_its_execution,
                    a_free_place_is_pointed_out,
                    a_head_without_a_log_is_not_kept,
                    a_holder_is_counted_once,
                    a_key_means_one_execution,
                    a_large_append_is_whole,
                    a_large_plan_is_whole,
                    a_lease_that_ran_out_frees_what_it_held,
                    a_limit_holds_everywhere,
                    a_log_that_is_not_there_does_not_go_on,
                    a_long_log_is_read_in_parts,
                    a_look_at_all_inboxes_is_bounded,
                    a_name_means_the_last_plan,
                    a_page_of_nothing_is_a_question,
                    a_plan_in_use_is_kept,
                    a_plan_is_kept_once,
                    a_rate_says_when,
                    a_read_begins_anywhere,
                    a_record_has_limits,
                    a_record_is_changed_unless_another_was_faster,
                    a_record_is_exact,
                    a_record_is_written_over_or_not,
                    a_refused_append_leaves_its_neighbours_alone,
                    a_request_is_kept_once,
                    a_retired_worker_has_nothing,
                    a_revision_says_what_changed,
                    a_store_that_works_says_so,
                    a_transcript_grows,
                    a_vector_has_limits,
                    a_vector_is_exact,
                    a_version_is_made_once,
                    all_limits_or_none,
                    an_append_continues_its_log,
                    an_append_that_cannot_be_written_is_refused,
                    an_inbox_has_a_bound,
                    an_output_is_kept_until_its_time,
                    commands_wait_in_order,
                    every_change_is_counted,
                    calls_are_added_up,
                    exactly_one_wins_each_position,
                    executions_are_filtered,
                    a_person_is_needed,
                    executions_do_not_disturb_each_other,
                    head_and_inbox_change_with_the_log,
                    heads_only_move_forward,
                    hints_wake_whoever_waits,
                    json_survives,
                    many_priorities_cost_no_more,
                    many_vectors_are_kept,
                    much_is_removed_in_parts,
                    names_of_plans_are_listed_and_taken_away,
                    what_has_ended_is_listed_in_that_order,
                    nobody_starves,
                    old_calls_are_forgotten,
                    one_record_is_the_first,
                    pages_follow_each_other,
                    plans_are_filtered,
                    records_come_in_order,
                    removal_may_be_watched,
                    requests_are_filtered,
                    requests_without_a_plan_have_failed,
                    the_first_vector_stays,
                    the_next_due_is_the_first,
                    the_places_of_a_lost_worker_are_free,
                    what_is_due_can_be_paged_through,
                    what_is_due_comes_in_order,
                    what_is_over_and_old_is_removed,
                    what_is_over_may_have_an_owner,
                    what_still_runs_is_never_removed,
                    workers_live_by_their_leases,
                }
            }
        )+
    };
}

stores! {
    behind_one_that_takes_its_time: crate::stores::slow,
    in_memory: crate::stores::memory,
    in_a_file: crate::stores::sqlite::alone,
    in_a_file_opened_twice: crate::stores::sqlite::twice,
    in_mongodb: crate::stores::mongo::alone,
    in_mongodb_opened_twice: crate::stores::mongo::twice,
}

/// The hostile twin, when it only stalls: all promises hold through it.
async fn slow() -> World {
    let stall = Duration::from_millis(2);
    let malice = Malice { fails_before: 0, fails_after: 0, forgets: 0, stalls: 100, stall };
    let store = Faulty::new(Arc::new(Memory::new()), Dice::new(1), malice);
    World::new(Arc::new(store), ())
}

async fn memory() -> World {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    World::new(store, ())
}
