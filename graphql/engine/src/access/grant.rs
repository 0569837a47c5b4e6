use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use shared::{
    actor::Actor,
    clock::Timestamp,
    execution::ReplanPermissions,
    id::ToolName,
    store::{Rate, Store},
};
use tokio_util::sync::CancellationToken;
use toolbox::{dispatch::ToolReach, tool_names::TOOL_SET};

use super::{
    Admission, QuotaError, Role, See, Token,
    alerts::{AlertKind, Alerts},
    bucket::Bucket,
    quota::QuotaMeter,
    required_role,
};

/// If a token has more rate limiters for single tools than this number, it drops the limiters of
/// which all uses are available again.
const MAX_BUCKETS: usize = 10_000;

/// The tools of the toolset `ToolSet` that activate and deactivate toolsets.
const ACTIVATION_TOOLS: [&str; 2] = ["activate_toolset", "deactivate_toolset"];

/// Limits of a token. Each process counts only its own uses, so two servers together allow twice as
/// many uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Rate>,
    /// Limit for each tool. The start of an execution counts once for each tool of its plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_tool: Option<Rate>,
}

impl Limits {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error(
        "`{field}` needs the role `{needed}`, and the token `{token}` has `{role}`: use another \
         token"
    )]
    Role { field: String, needed: Role, token: String, role: Role },
    #[error(
        "the token `{token}` may not use the tool `{tool}`: use another token, or add the tool to \
         its `tools`"
    )]
    Tool { token: String, tool: String },
    /// The token has reached a limit or a quota. Another attempt helps after `wait`.
    #[error("the token `{token}` has {reached}; try again in {} s", round_up_seconds(*wait))]
    LimitReached { token: String, reached: String, wait: Duration },
}

fn round_up_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl AccessError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Role { .. } | Self::Tool { .. } => "FORBIDDEN",
            Self::LimitReached { .. } => "LIMIT_EXCEEDED",
        }
    }
}

/// The permissions and the identity of a caller. The default value has no restrictions and no
/// identity.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    rights: Option<Arc<Rights>>,
    actor: Option<Arc<Actor>>,
    client: Option<Arc<str>>,
    revoked: Option<CancellationToken>,
}

#[derive(Debug)]
pub(super) struct Rights {
    token: Token,
    actor_name: String,
    usage: Mutex<LimitUsage>,
    quotas: QuotaMeter,
    alerts: Arc<Alerts>,
}

#[derive(Debug, Default)]
struct LimitUsage {
    calls: Option<Bucket>,
    tools: BTreeMap<ToolName, Bucket>,
}

impl Rights {
    pub(super) fn new(token: Token, alerts: Arc<Alerts>) -> Self {
        let actor_name = Actor::token(&token.name).name.unwrap_or_default();
        let quotas = QuotaMeter::new(actor_name.clone(), token.quotas);
        Self { token, actor_name, usage: Mutex::default(), quotas, alerts }
    }

    /// Returns whether the token allows a tool. The tools that activate and deactivate toolsets
    /// need an admin, unless a pattern of the token names their toolset `ToolSet`.
    fn allows(&self, tool: &str) -> bool {
        let Token { role, tools, .. } = &self.token;
        let matching = || tools.iter().flatten().filter(|pattern| pattern.matches(tool));
        let action_name = tool.strip_prefix(TOOL_SET).and_then(|rest| rest.strip_prefix('.'));
        if action_name.is_some_and(|name| ACTIVATION_TOOLS.contains(&name)) && *role != Role::Admin
        {
            return matching().any(|pattern| pattern.names_set(TOOL_SET));
        }
        tools.is_none() || matching().next().is_some()
    }

    fn count_uses(&self, tools: &BTreeSet<&ToolName>, now: Instant) -> Result<(), AccessError> {
        let Limits { calls, per_tool } = self.token.limits;
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let usage = &mut *usage;
        if let Some(rate) = calls {
            let bucket = usage.calls.get_or_insert_with(|| Bucket::new(rate, now));
            if let Some(wait) = bucket.time_until_use(now) {
                return Err(self.limit_error("calls", wait));
            }
        }
        if let Some(rate) = per_tool {
            if usage.tools.len() + tools.len() > MAX_BUCKETS {
                usage.tools.retain(|_, limiter| !limiter.is_full(now));
            }
            for tool in tools {
                let bucket = usage.tools.entry((*tool).clone());
                let bucket = bucket.or_insert_with(|| Bucket::new(rate, now));
                if let Some(wait) = bucket.time_until_use(now) {
                    return Err(self.limit_error(&format!("per_tool` of `{tool}"), wait));
                }
            }
        }
        // Counts the uses after all checks, because a call that exceeds one limit must not count
        // toward another.
        usage.calls.iter_mut().for_each(Bucket::take_use);
        for tool in tools {
            usage.tools.get_mut(*tool).into_iter().for_each(Bucket::take_use);
        }
        Ok(())
    }

    /// Returns whether all uses are available again, so that new rights would have the same state.
    fn has_all_uses(&self, now: Instant) -> bool {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let LimitUsage { calls, tools } = &mut *usage;
        calls.iter_mut().chain(tools.values_mut()).all(|bucket| bucket.is_full(now))
    }

    fn check_limits(&self, now: Instant) -> Result<(), AccessError> {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        match usage.calls.as_mut().and_then(|limiter| limiter.time_until_use(now)) {
            Some(wait) => Err(self.limit_error("calls", wait)),
            None => self.quotas.check_remembered(now),
        }
    }

    fn limit_error(&self, limit: &str, wait: Duration) -> AccessError {
        let reached = format!("used up its limit `{limit}`");
        AccessError::LimitReached { token: self.token.name.clone(), reached, wait }
    }

    fn raise_quota_alert(&self, err: &QuotaError) {
        if let QuotaError::Reached(err) = err {
            self.raise_alert(AlertKind::Limit, err, Instant::now());
        }
    }

    fn raise_alert(&self, kind: AlertKind, err: &AccessError, now: Instant) {
        self.alerts.raise(kind, &self.token.name, &err.to_string(), now);
    }
}

/// Returns a token with the limits and tools of an agent's caller, for a process that does not know
/// the caller's own token.
pub(super) fn token_of_agent(name: &str, reach: &ToolReach, limits: Limits) -> Token {
    let is_excluded = |action: &&str| {
        let tool = format!("{TOOL_SET}.{action}");
        reach.except.iter().any(|pattern| pattern.matches(&tool))
    };
    let can_switch = !ACTIVATION_TOOLS.iter().any(is_excluded);
    let role = if can_switch { Role::Admin } else { Role::Operator };
    Token { limits, tools: reach.tools.clone(), ..Token::new(name, "", role) }
}

impl Grant {
    pub(super) fn from_rights(rights: Rights) -> Self {
        let actor = Actor::token(&rights.token.name);
        Self {
            rights: Some(Arc::new(rights)),
            actor: Some(Arc::new(actor)),
            client: None,
            revoked: Some(CancellationToken::new()),
        }
    }

    pub(super) fn revoked_by(self, revoked: CancellationToken) -> Self {
        Self { revoked: Some(revoked), ..self }
    }

    pub(super) fn has_token(&self, token: &Token) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.token.is_same(token))
    }

    pub fn limits(&self) -> Limits {
        self.rights.as_ref().map(|rights| rights.token.limits).unwrap_or_default()
    }

    /// Returns whether a copy of this grant exists, or uses count toward its limits.
    pub(super) fn is_in_use(&self, now: Instant) -> bool {
        let in_use =
            |rights: &Arc<Rights>| Arc::strong_count(rights) > 1 || !rights.has_all_uses(now);
        self.rights.as_ref().is_some_and(in_use)
    }

    pub(super) fn revoke(&self) {
        self.revoked.iter().for_each(CancellationToken::cancel);
    }

    /// Waits until the configuration loses or changes the token of this grant. Never returns if the
    /// grant has no such token.
    pub async fn wait_until_revoked(&self) {
        match &self.revoked {
            Some(revoked) => revoked.cancelled().await,
            None => std::future::pending().await,
        }
    }

    pub fn of_actor(actor: Actor) -> Self {
        Self { actor: Some(Arc::new(actor)), ..Self::default() }
    }

    #[must_use]
    pub fn through_client(&self, client: &str) -> Self {
        Self { client: Some(client.into()), ..self.clone() }
    }

    pub fn actor(&self, default: Option<&Arc<Actor>>) -> Option<Arc<Actor>> {
        let actor = self.actor.as_ref().or(default)?;
        Some(match &self.client {
            Some(client) => Arc::new(actor.with_client(client)),
            None => Arc::clone(actor),
        })
    }

    /// Returns the name of the token to which requests and executions of the caller belong, in the
    /// form that actors have. Nothing belongs to a caller without a token.
    pub fn token_name(&self) -> Option<&str> {
        self.rights.as_ref().map(|rights| rights.actor_name.as_str())
    }

    pub fn visible_token(&self) -> Option<&str> {
        let rights = self.rights.as_ref()?;
        let is_restricted = rights.token.see == See::Own && rights.token.role != Role::Admin;
        is_restricted.then_some(&rights.actor_name)
    }

    pub fn name(&self) -> Option<&str> {
        self.rights.as_ref().map(|rights| rights.token.name.as_str())
    }

    /// Returns the role of the caller. A caller without a token has all rights.
    pub fn role(&self) -> Role {
        self.rights.as_ref().map_or(Role::Admin, |rights| rights.token.role)
    }

    pub fn check_field(&self, root: &str, field: &str) -> Result<(), AccessError> {
        let Some(rights) = &self.rights else { return Ok(()) };
        let (role, needed) = (rights.token.role, required_role(root, field));
        if role >= needed {
            return Ok(());
        }
        let (field, token) = (field.to_owned(), rights.token.name.clone());
        Err(AccessError::Role { field, needed, token, role })
    }

    pub fn allows(&self, tool: &ToolName) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.allows(tool.as_str()))
    }

    pub fn allows_every_tool(&self) -> bool {
        self.rights
            .as_ref()
            .is_none_or(|rights| rights.token.tools.is_none() && rights.token.role == Role::Admin)
    }

    pub fn agent_reach(&self) -> ToolReach {
        let Some(rights) = &self.rights else { return ToolReach::default() };
        let switches = ACTIVATION_TOOLS.iter().map(|name| format!("{TOOL_SET}.{name}"));
        let except =
            switches.filter(|name| !rights.allows(name)).filter_map(|name| name.parse().ok());
        ToolReach {
            tools: rights.token.tools.clone(),
            except: except.collect(),
            sets: Vec::new(),
            token: Some(rights.token.name.clone()),
        }
    }

    /// Returns the permissions for automatic replans, or `None` if the caller is allowed to use
    /// every tool.
    pub fn replan_permissions(&self) -> Option<ReplanPermissions> {
        let rights = self.rights.as_ref().filter(|_| !self.allows_every_tool())?;
        let Token { name, role, tools, .. } = &rights.token;
        let (token, switches) = (name.clone(), *role == Role::Admin);
        Some(ReplanPermissions { token, tools: tools.clone(), switches })
    }

    /// Returns the grant for an automatic replan. This grant has no rate limits, because the option
    /// `replans` limits the number of replans.
    pub fn for_replan(within: &ReplanPermissions) -> Self {
        let role = if within.switches { Role::Admin } else { Role::Operator };
        let token = Token { tools: within.tools.clone(), ..Token::new(&*within.token, "", role) };
        let grant = Self::from_rights(Rights::new(token, Arc::default()));
        Self { actor: Some(Arc::new(Actor::faber())), ..grant }
    }

    pub fn check_reach(&self, reach: &ToolReach) -> Result<(), AccessError> {
        let own_reach = self.agent_reach();
        let is_within = own_reach.tools == reach.tools
            && own_reach.except.iter().all(|pattern| reach.except.contains(pattern));
        if self.allows_every_tool() || is_within {
            return Ok(());
        }
        let token = self.name().unwrap_or_default().to_owned();
        Err(AccessError::Tool { token, tool: "faber_agent.*".to_owned() })
    }

    /// Rejects an agent whose calls would count toward the limits of another token, if the token of
    /// this caller has limits.
    pub fn check_reach_limits(&self, reach: &ToolReach) -> Result<(), AccessError> {
        if !self.has_limits() || reach.token.as_deref() == self.name() {
            return Ok(());
        }
        let token = self.name().unwrap_or_default().to_owned();
        Err(AccessError::Tool { token, tool: "faber_agent.*".to_owned() })
    }

    pub fn check_tools<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolName>,
    ) -> Result<(), AccessError> {
        let Some(rights) = &self.rights else { return Ok(()) };
        let Some(tool) = tools.into_iter().find(|tool| !rights.allows(tool.as_str())) else {
            return Ok(());
        };
        let err = AccessError::Tool { token: rights.token.name.clone(), tool: tool.to_string() };
        rights.raise_alert(AlertKind::ForbiddenTool, &err, Instant::now());
        Err(err)
    }

    pub fn has_limits(&self) -> bool {
        !self.limits().is_empty()
    }

    /// Rejects a start that the limits exclude already. Counts nothing and reads no store.
    pub fn check_limits(&self) -> Result<(), AccessError> {
        let Some(rights) = &self.rights else { return Ok(()) };
        let now = Instant::now();
        rights.check_limits(now).inspect_err(|err| rights.raise_alert(AlertKind::Limit, err, now))
    }

    /// Rejects a start that the limits or quotas exclude now, before work that a refused start
    /// would waste. Counts nothing. `owner` is the token of the new execution.
    pub async fn check_start(
        &self,
        store: &dyn Store,
        owner: Option<&str>,
    ) -> Result<(), QuotaError> {
        self.check_limits()?;
        let Some(rights) = &self.rights else { return Ok(()) };
        let checked = rights.quotas.check_start(store, owner).await;
        checked.inspect_err(|err| rights.raise_quota_alert(err))
    }

    /// Checks the quotas of the caller's token before a start, and counts the start if the quotas
    /// allow it. `owner` is the token to which the new execution belongs.
    pub async fn admit_start(
        &self,
        store: &dyn Store,
        owner: Option<&str>,
        now: Timestamp,
    ) -> Result<Admission, QuotaError> {
        let Some(rights) = &self.rights else { return Ok(Admission::default()) };
        let admitted = rights.quotas.admit_start(store, owner, now).await;
        admitted.inspect_err(|err| rights.raise_quota_alert(err))
    }

    /// Counts one use of the token, and one use of each tool. If this would exceed a limit, counts
    /// nothing and returns an error.
    pub fn count_uses<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolName>,
    ) -> Result<(), AccessError> {
        let Some(rights) = self.rights.as_ref().filter(|rights| !rights.token.limits.is_empty())
        else {
            return Ok(());
        };
        let now = Instant::now();
        let tools = tools.into_iter().collect();
        rights
            .count_uses(&tools, now)
            .inspect_err(|err| rights.raise_alert(AlertKind::Limit, err, now))
    }
}
