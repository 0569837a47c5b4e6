//! Every store keeps every promise of the suite, alone and shared.

mod differential;
mod mongo;
mod sqlite;
mod tail;

use std::sync::Arc;

use shared::store::{Store, memory::Memory};
use tests::conformance::{self, World};

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
                    a_key_means_one_execution,
                    a_large_append_is_whole,
                    a_large_plan_is_whole,
                    a_lease_that_ran_out_frees_what_it_held,
                    a_log_that_is_not_there_does_not_go_on,
                    a_long_log_is_read_in_parts,
                    a_page_of_nothing_is_a_question,
                    a_plan_is_kept_once,
                    a_read_begins_anywhere,
                    a_refused_append_leaves_its_neighbours_alone,
                    a_request_is_kept_once,
                    a_retired_worker_has_nothing,
                    a_store_that_works_says_so,
                    a_transcript_grows,
                    a_version_is_made_once,
                    an_append_continues_its_log,
                    commands_wait_in_order,
                    exactly_one_wins_each_position,
                    executions_are_filtered,
                    executions_do_not_disturb_each_other,
                    head_and_inbox_change_with_the_log,
                    heads_only_move_forward,
                    hints_wake_whoever_waits,
                    json_survives,
                    pages_follow_each_other,
                    plans_are_filtered,
                    requests_are_filtered,
                    the_next_due_is_the_first,
                    what_is_due_comes_in_order,
                }
            }
        )+
    };
}

stores! {
    in_memory: crate::stores::memory,
    in_a_file: crate::stores::sqlite::alone,
    in_a_file_opened_twice: crate::stores::sqlite::twice,
    in_mongodb: crate::stores::mongo::alone,
    in_mongodb_opened_twice: crate::stores::mongo::twice,
}

async fn memory() -> World {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    World::new(store, ())
}
