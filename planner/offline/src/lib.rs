//! Plans without a model: by the words of a query and of the tools' names, descriptions and
//! schemas, the same way every time.
//!
//! First by grammar: a query is cut into clauses ([`clause`]); each clause's tool is chosen by words
//! ([`choose`]); the tool's parameters are filled from the clause ([`scan`], [`cue`], [`value`],
//! [`fill`]), with what earlier clauses made where it speaks of that ([`memory`]). Whatever is not
//! understood is said ([`explain`]); what is derived by a rule is said too, as a warning.
//!
//! Where that gives no plan, by evidence ([`broad`]): every tool is read as slots ([`slot`],
//! [`describe`]), every text as spans that may be values ([`span`], [`amount`], [`when`], [`mod@unit`]);
//! how well each span fits each slot is a number ([`fit`]), the best together are taken
//! ([`assign`]), and what is said several times makes several calls ([`repeat`], [`records`]). What
//! that is not sure enough of is refused.

mod amount;
mod assign;
mod bracket;
mod broad;
mod choose;
mod clause;
mod cue;
mod derive;
mod describe;
mod effort;
mod explain;
mod fill;
mod fit;
mod gate;
mod meaning;
mod memory;
mod mood;
mod phrase;
mod planning;
mod profile;
mod property;
mod records;
mod reference;
mod repeat;
mod scan;
mod several;
mod slot;
mod span;
#[cfg(test)]
mod tests;
mod text;
mod token;
mod uncalled;
mod unit;
mod value;
mod veto;
mod when;
mod words;

use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use shared::{condition::COMPUTE, limits, tool::ToolDefinition};
use tokio::sync::Semaphore;

use self::{
    broad::Broad,
    effort::Stop,
    meaning::Meaning,
    mood::{Finding, Moods},
    planning::Planning,
    profile::{Profile, Vocabulary},
    token::{Kind, Token},
};
use planner::{
    PlanCompiler, Planner, PlanningError, Proposal, ProposedPlan, catalog::Catalog,
    embed::Embedders,
};

/// How long planning may take, the wait for its turn included.
const DEADLINE: Duration = Duration::from_secs(5);
/// Queries that are planned at once.
const AT_ONCE: usize = 4;
/// Denials that a plan tells it left out.
const LEFT_OUT: usize = 16;
/// Catalogs whose tools stay read.
const READINGS: usize = 4;
/// Words and marks that a query may have.
const TOKENS: usize = 10_000;

/// The planner that needs no model.
#[derive(Clone, Debug, Default)]
pub struct Offline {
    /// What knows which tools mean nearly the same as a query.
    meaning: Option<Arc<Meaning>>,
    readings: Readings,
}

impl Offline {
    /// Makes a planner that asks for the meaning of words where several tools that only look are
    /// close by the words themselves.
    pub fn with(embedders: Arc<Embedders>) -> Self {
        Self { meaning: Some(Arc::new(Meaning::new(embedders))), readings: Readings::default() }
    }

    /// Proposes a draft for `query` that uses tools of `catalog`.
    pub async fn propose(&self, query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
        let read = |meaning: Option<Vec<f32>>| {
            let (query, catalog) = (query.to_owned(), catalog.clone());
            let readings = self.readings.clone();
            let work = move |stop: &Stop| {
                let (close, meaning) = (Close::default(), meaning.as_deref());
                let planned = propose_with(&query, &catalog, &readings, meaning, &close, stop);
                (planned, close)
            };
            within(DEADLINE, work)
        };
        let (by_words, close) = read(None).await?;
        let Some(meaning) = &self.meaning else { return by_words };
        let close: Vec<usize> = close.0.into_inner().into_iter().collect();
        let Some(near) = meaning.near(query, catalog, &close).await else { return by_words };
        // What acts is called for its words alone.
        match read(Some(near)).await? {
            (Ok(planned), _) if meaning::only_looks(&planned, catalog) => Ok(planned),
            _ => by_words,
        }
    }
}

#[async_trait]
impl Planner for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    async fn plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        self.propose(query, catalog).await?.compile(self.name(), compiler).await
    }
}

/// Does long work beside the runtime and waits for it; what takes too long is told to stop,
/// and keeps its permit up to then, so that never more of it is under way than the machine carries.
async fn within<T: Send + 'static>(
    most: Duration,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> Result<T, PlanningError> {
    /// Stops the work when nobody waits for it, also where the wait itself was given up.
    struct Waiting(Stop);
    impl Drop for Waiting {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    static PERMITS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(AT_ONCE)));
    let waiting = Waiting(Stop::default());
    let stop = waiting.0.clone();
    let done = async {
        let permit = Arc::clone(&PERMITS).acquire_owned().await.ok();
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&stop)
        });
        work.await
    };
    let unavailable = |message: String| PlanningError::Unavailable { message, notes: Vec::new() };
    match tokio::time::timeout(most, done).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(err)) => Err(unavailable(format!("planning was given up: {err}"))),
        Err(_) => Err(unavailable(format!(
            "planning took longer than {} s: say it in fewer words, or split the query",
            most.as_secs()
        ))),
    }
}

/// Proposes a draft for `query` that uses tools of `catalog`, or says why not.
pub fn propose(query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
    let readings = Readings::default();
    propose_with(query, catalog, &readings, None, &Close::default(), &Stop::default())
}

/// Tools between which words did not decide for certain, by their places among those that can be
/// planned.
#[derive(Debug, Default)]
struct Close(RefCell<BTreeSet<usize>>);

/// The same, with how near the tools are that can be planned, by somebody who knows. Tells which
/// are close.
fn propose_with(
    query: &str,
    catalog: &Catalog,
    readings: &Readings,
    meaning: Option<&[f32]>,
    close: &Close,
    stop: &Stop,
) -> Result<Proposal, PlanningError> {
    if query.len() > limits::QUERY_BYTES {
        return refuse(format!(
            "the query has {} bytes, but {} is the most: say it in fewer words",
            query.len(),
            limits::QUERY_BYTES
        ));
    }
    let asked = query;
    let query = unquoted(query);
    let read = readings.of(catalog);
    let Read { profiles, vocabulary } = &*read;
    if profiles.is_empty() {
        return refuse(
            "there are no tools to plan with: register a toolset, or switch one on".to_owned(),
        );
    }
    let tokens = token::tokens(query);
    if tokens.len() > TOKENS {
        let has = tokens.len();
        return refuse(format!(
            "the query has {has} words and marks, but {TOKENS} is the most: split it"
        ));
    }
    let moods = Moods::read(query, &tokens, vocabulary);
    let reader = Reader { query, profiles, vocabulary, moods: &moods, meaning, close, stop };
    let first = reader.read(&tokens)?;
    let called = first.called();
    let denied: Vec<&Finding> = moods.left_out(&called).collect();
    let mut planning = if first.is_refused() || denied.is_empty() {
        first
    } else {
        reader.without(&tokens, &denied)?
    };
    planning.guard(&tokens, stop);
    let planned = uncalled::heed(planning, &tokens, catalog);
    let mut proposal = planned?;
    proposal.draft.query = Some(asked.to_owned());
    Ok(proposal)
}

/// A query, and what it is read with.
struct Reader<'a> {
    query: &'a str,
    profiles: &'a [Profile],
    vocabulary: &'a Vocabulary,
    moods: &'a Moods,
    meaning: Option<&'a [f32]>,
    close: &'a Close,
    stop: &'a Stop,
}

impl<'a> Reader<'a> {
    /// Reads a query by grammar, and by evidence where that is not certain.
    fn read(&self, tokens: &[Token]) -> Result<Planning<'a>, PlanningError> {
        let clauses = clause::clauses(tokens, self.vocabulary);
        if clauses.is_empty() {
            return refuse(
                "the query asks for nothing: say what to do, such as `list all …` or `create …`"
                    .to_owned(),
            );
        }
        if clauses.len() > clause::CLAUSES {
            return refuse(format!(
                "the query has {} clauses, but {} is the most: split it",
                clauses.len(),
                clause::CLAUSES
            ));
        }
        let mut planning = self.planning();
        for clause in clauses {
            self.goes_on()?;
            planning.clause(clause);
        }
        if planning.is_certain() {
            return Ok(planning);
        }
        self.by_evidence(tokens, planning)
    }

    /// Ends the work that nobody waits for any longer.
    fn goes_on(&self) -> Result<(), PlanningError> {
        if self.stop.is_stopped() {
            return refuse("planning was stopped: say it in fewer words".to_owned());
        }
        Ok(())
    }

    fn planning(&self) -> Planning<'a> {
        Planning::new(self.query, self.profiles, self.vocabulary, self.moods)
    }

    /// Plans by what words may be worth, where that is sure enough; else says why it is not.
    fn by_evidence(
        &self,
        tokens: &[Token],
        mut strict: Planning<'a>,
    ) -> Result<Planning<'a>, PlanningError> {
        let broad = Broad {
            query: self.query,
            tokens,
            profiles: self.profiles,
            vocabulary: self.vocabulary,
            measures: &amount::measures(tokens),
            meaning: self.meaning,
            close: self.close,
        };
        let mut planning = self.planning();
        let parts = broad.parts();
        for part in &parts {
            self.goes_on()?;
            planning.part(&broad, part);
        }
        if let Some(words) = broad.unanswered(&parts) {
            planning.unanswered(words);
        }
        // Evidence may cut the values of a certain plan better, and is not asked about more.
        let is_other = strict.is_plan() && !planning.is_alike(&strict);
        Ok(match planning.doubt(&broad, &parts, &strict) {
            None if is_other => strict,
            None => planning,
            Some(_) if planning.is_refused() => planning,
            Some(why) => {
                strict.decline(&planning, why);
                strict
            }
        })
    }

    /// Reads what is left of a query without what it denies, for tools that only look.
    fn without(
        &self,
        tokens: &[Token],
        denied: &[&Finding],
    ) -> Result<Planning<'a>, PlanningError> {
        let mut is_kept = vec![true; tokens.len()];
        let mut end = 0;
        for cut in denied.iter().filter_map(|it| it.cut.clone()) {
            // In their order, so that no word is looked at once for each of them.
            (cut.start.max(end)..cut.end).for_each(|at| is_kept[at] = false);
            end = end.max(cut.end);
        }
        let kept: Vec<Token> =
            tokens.iter().zip(is_kept).filter(|it| it.1).map(|it| it.0.clone()).collect();
        if kept.iter().all(|it| it.kind == Kind::Mark || words::is_filler(&it.lower)) {
            let said = denied.first().map(|it| it.said.as_str()).unwrap_or_default();
            return refuse(format!("`{said}` says only what is not to be done: say what is"));
        }
        let mut planning = self.read(&kept)?;
        for it in denied.iter().take(LEFT_OUT) {
            planning.leave_out(&it.said);
        }
        Ok(planning)
    }
}

/// Returns a query without quotation marks around all of it.
fn unquoted(query: &str) -> &str {
    let trimmed = query.trim();
    let inner = trimmed.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.filter(|it| it.contains(' ') && it.matches('"').count() % 2 == 0).unwrap_or(query)
}

fn refuse<T>(message: String) -> Result<T, PlanningError> {
    Err(PlanningError::NoPlan { message, nearest: Vec::new(), notes: Vec::new() })
}

/// What this planner makes of the tools of a catalog: much work where they are thousands, and the
/// same for every query.
#[derive(Debug)]
struct Read {
    profiles: Vec<Profile>,
    vocabulary: Vocabulary,
}

impl Read {
    fn of(catalog: &Catalog) -> Self {
        let profiles = profiles(catalog);
        let vocabulary = Vocabulary::of(&profiles);
        Self { profiles, vocabulary }
    }
}

/// A catalog, and what was read of its tools.
type Reading = (Catalog, Arc<Read>);

/// The tools of recent catalogs, read once for all queries with the same catalog. Clones share them.
#[derive(Clone, Debug, Default)]
struct Readings(Arc<Mutex<VecDeque<Reading>>>);

impl Readings {
    fn of(&self, catalog: &Catalog) -> Arc<Read> {
        let recent = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |(known, _): &&Reading| known.is_same(catalog);
        if let Some((_, read)) = recent().iter().find(is_same) {
            return Arc::clone(read);
        }
        let read = Arc::new(Read::of(catalog));
        let mut recent = recent();
        recent.push_front((catalog.clone(), Arc::clone(&read)));
        recent.truncate(READINGS);
        read
    }
}

/// Returns the tools that can be planned from words. Nobody says an expression in words.
fn tools_for_words(catalog: &Catalog) -> impl Iterator<Item = &Arc<ToolDefinition>> {
    catalog.plannable().filter(|tool| tool.qualified_name().as_str() != COMPUTE)
}

/// Reads every tool that can be planned; a plain name is used where it means that very tool.
fn profiles(catalog: &Catalog) -> Vec<Profile> {
    let is_plain = |tool: &ToolDefinition| {
        catalog.find(tool.name.as_str()).is_some_and(|it| it.definition.set == tool.set)
    };
    tools_for_words(catalog)
        .map(|tool| {
            let name = if is_plain(tool) {
                tool.name.as_str().to_owned()
            } else {
                tool.qualified_name().as_str().to_owned()
            };
            Profile::read(tool, name)
        })
        .collect()
}
