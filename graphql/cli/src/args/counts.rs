use clap::{Args, ValueEnum};

use super::inspection::{DetailFilters, State};

#[derive(Args, Debug)]
pub(crate) struct CountsArgs {
    /// One or two keys. `tool` and `error` are the tool and the code of the first error.
    #[arg(
        long,
        value_name = "KEY,…",
        value_enum,
        ignore_case = true,
        value_delimiter = ',',
        default_values_t = [CountKey::Tool, CountKey::Error]
    )]
    pub(crate) by: Vec<CountKey>,
    /// Only executions created at or after this time, such as `2026-01-02T03:04:05Z`, or an age such
    /// as `1h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only executions created before this time, or an age.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only executions in one of these states.
    #[arg(long, value_enum, ignore_case = true, value_delimiter = ',')]
    pub(crate) state: Vec<State>,
    /// Only executions whose plan uses this tool.
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// The key of the label of `--by label`.
    #[arg(long, value_name = "KEY")]
    pub(crate) label_key: Option<String>,
    /// The length of the parts of time of `--by bucket`, such as `15m` [default: 1h].
    #[arg(long, value_name = "AGE")]
    pub(crate) bucket: Option<String>,
    #[command(flatten)]
    pub(crate) details: DetailFilters,
    /// Maximum number of groups.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) first: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CountKey {
    State,
    Tool,
    Error,
    Plan,
    Label,
    Bucket,
}
