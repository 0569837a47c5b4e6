//! Nodes that share one store: real processes of the binary share executions, limits, commands and
//! subscriptions. The tests drain, kill and replace nodes, and clients must not notice.

mod call_limits;
mod changed_clocks;
mod cluster;
mod fair_shares;
mod node;
mod output_cache;
mod remote_control;
mod rolling_restart;
mod single_process;
mod sub_plans;
mod workspace;
