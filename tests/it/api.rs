//! The API in process, over real stores and with a real worker.

mod backups;
mod blobs;
mod bulk_control;
mod call_limits;
mod compensations;
mod compute;
mod connecting_toolsets;
mod controls;
mod drafts;
mod dry_runs;
mod errors;
mod findings;
mod json;
mod lists;
mod loops;
mod plan_cache;
mod plan_life;
mod pruning;
mod retries;
mod saved_plans;
mod selection;
mod sub_plans;
mod subscriptions;
mod test_api;
mod toolkit;
mod toolsets;
