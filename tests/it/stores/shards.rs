//! Checks the design of sharding. One server without shards is enough, because it profiles each
//! operation of a store.
//!
//! `mongos` sends an operation to one shard if its filter has the shard key with equality.
//! Otherwise it sends the operation to all shards. The test reads the shard keys, and the fields of
//! operations that may go to all shards, from `docs/design/sharding.md`.

mod workload;

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use mongo::Mongo;
use mongodb::{
    Client, Database,
    bson::{Bson, Document, doc},
};

use crate::mongod::Mongod;

const DESIGN_PAGE: &str = include_str!("../../../docs/design/sharding.md");
/// Collections that are never sharded and have few documents, so the store reads them without an
/// index.
const SMALL_COLLECTIONS: [&str; 3] = ["workers", "going", "meta"];
/// Bytes of the profile. The default of the server is too small for the workload.
const PROFILE_BYTES: u64 = 64 << 20;
/// Documents that an operation may examine in addition to those that it returns or writes.
const MAX_EXTRA_DOCUMENTS: i64 = 2;
const WRITE_KINDS: [&str; 2] = ["update", "remove"];

fn read_shard_keys() -> BTreeMap<&'static str, &'static str> {
    let lines = DESIGN_PAGE.lines().filter_map(|line| {
        let command = line.strip_prefix("sh.shardCollection(\"faber.")?;
        let (collection, key) = command.split_once("\", { \"")?;
        Some((collection, key.split_once('"')?.0))
    });
    lines.collect()
}

/// The part of the workload in which an operation runs, and its collection.
type Place = (&'static str, &'static str);

fn read_scattered_fields() -> BTreeMap<Place, BTreeSet<&'static str>> {
    let (_, section) = DESIGN_PAGE.split_once("## Scattered operations").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (phase, collection) = (cells.next()?, cells.next()?);
        let collection = collection.strip_prefix('`')?.strip_suffix('`')?;
        let fields: BTreeSet<_> = cells.next()?.split('`').skip(1).step_by(2).collect();
        Some(((phase, collection), fields))
    });
    rows.collect()
}

struct Operation {
    collection: String,
    /// `insert`, `query`, `getmore`, `update`, `remove` or `command`.
    kind: String,
    filter: Document,
    pipeline: Vec<Document>,
    profile: Document,
}

impl Operation {
    /// Returns `None` for a command without a collection of the store.
    fn from_profile(profile: Document) -> Option<Self> {
        let collection = profile.get_str("ns").unwrap().split_once('.')?.1.to_owned();
        if collection.starts_with('$') || collection.starts_with("system.") {
            return None;
        }
        let command = profile.get_document("originatingCommand");
        let command = command.or_else(|_| profile.get_document("command")).unwrap();
        let stages = command.get_array("pipeline").into_iter().flatten();
        let pipeline: Vec<_> = stages.filter_map(Bson::as_document).cloned().collect();
        let filter =
            ["filter", "query", "q"].iter().find_map(|name| command.get_document(*name).ok());
        let first = pipeline.first().and_then(|stage| stage.get_document("$match").ok());
        let filter = filter.or(first).cloned().unwrap_or_default();
        let kind = profile.get_str("op").unwrap().to_owned();
        Some(Self { collection, kind, filter, pipeline, profile })
    }

    fn count(&self, field: &str) -> i64 {
        let number = self.profile.get(field);
        number.and_then(|n| n.as_i64().or_else(|| n.as_i32().map(i64::from))).unwrap_or_default()
    }

    /// Returns `true` if the operation counts or groups documents. Such an operation is allowed to
    /// read all of them.
    fn is_count(&self) -> bool {
        let last = self.pipeline.last();
        last.is_some_and(|stage| stage.contains_key("$count") || stage.contains_key("$group"))
    }

    fn describe(&self) -> String {
        let plan = self.profile.get_str("planSummary").unwrap_or_default();
        let (examined, returned) = (self.count("docsExamined"), self.count("nreturned"));
        let Self { collection, kind, filter, .. } = self;
        format!("{kind} {collection} {filter} [{plan}, {examined} examined, {returned} returned]")
    }
}

/// Returns `true` if `mongos` finds the shard, because the filter has the key with equality or
/// `$in`, or the document around the key with equality.
fn is_targeted(filter: &Document, key: &str) -> bool {
    let is_operator = |value: &Document| value.keys().any(|name| name.starts_with('$'));
    match filter.get(key) {
        Some(Bson::Document(value)) if is_operator(value) => {
            return value.contains_key("$eq") || value.contains_key("$in");
        }
        Some(_) => return true,
        None => (),
    }
    let Some((outer, inner)) = key.split_once('.') else { return false };
    let outer = filter.get_document(outer);
    outer.is_ok_and(|outer| !is_operator(outer) && outer.contains_key(inner))
}

fn add_fields(filter: &Document, fields: &mut BTreeSet<String>) {
    for (name, value) in filter {
        if let ("$and" | "$or" | "$nor", Bson::Array(parts)) = (name.as_str(), value) {
            parts.iter().filter_map(Bson::as_document).for_each(|part| add_fields(part, fields));
        } else {
            fields.insert(name.clone());
        }
    }
}

#[derive(Debug)]
struct Checker {
    shard_keys: BTreeMap<&'static str, &'static str>,
    scattered_fields: BTreeMap<Place, BTreeSet<&'static str>>,
    /// The entries of `scattered_fields` that an operation used.
    used_fields: BTreeMap<Place, BTreeSet<&'static str>>,
    targeted_collections: BTreeSet<String>,
    faults: BTreeSet<String>,
}

impl Checker {
    fn new() -> Self {
        Self {
            shard_keys: read_shard_keys(),
            scattered_fields: read_scattered_fields(),
            used_fields: BTreeMap::new(),
            targeted_collections: BTreeSet::new(),
            faults: BTreeSet::new(),
        }
    }

    fn check_shards(&mut self, phase: &str, operation: &Operation) {
        let lookups =
            operation.pipeline.iter().filter_map(|stage| stage.get_document("$lookup").ok());
        for from in lookups.filter_map(|lookup| lookup.get_str("from").ok()) {
            if self.shard_keys.contains_key(from) {
                self.check_fields(phase, from, &["$lookup".to_owned()].into(), operation);
            }
        }
        let Some(key) = self.shard_keys.get(&*operation.collection) else { return };
        if operation.kind == "insert" {
            return;
        }
        if is_targeted(&operation.filter, key) {
            self.targeted_collections.insert(operation.collection.clone());
            return;
        }
        if WRITE_KINDS.contains(&&*operation.kind) && phase != "retention" {
            self.faults.insert(format!("{phase}: a scattered write: {}", operation.describe()));
        }
        let mut fields = BTreeSet::new();
        add_fields(&operation.filter, &mut fields);
        self.check_fields(phase, &operation.collection, &fields, operation);
    }

    fn check_fields(
        &mut self,
        phase: &str,
        collection: &str,
        fields: &BTreeSet<String>,
        operation: &Operation,
    ) {
        let row = self.scattered_fields.iter().find(|(place, _)| **place == (phase, collection));
        let Some((place, permitted)) = row else {
            self.faults.insert(format!("{phase}: scattered: {}", operation.describe()));
            return;
        };
        let used = self.used_fields.entry(*place).or_default();
        for field in fields {
            match permitted.get(field.as_str()) {
                Some(field) => used.insert(*field),
                None => self.faults.insert(format!(
                    "{phase}: `{field}` of `{collection}` is not on the page: {}",
                    operation.describe()
                )),
            };
        }
    }

    fn check_index(&mut self, phase: &str, operation: &Operation) {
        let plan = operation.profile.get_str("planSummary").unwrap_or_default();
        if plan.contains("COLLSCAN") && !SMALL_COLLECTIONS.contains(&&*operation.collection) {
            self.faults.insert(format!("{phase}: no index: {}", operation.describe()));
        }
    }

    fn check_examined(&mut self, phase: &str, operation: &Operation) {
        let results = ["nreturned", "nMatched", "ndeleted"].map(|field| operation.count(field));
        let most = results.iter().sum::<i64>() + MAX_EXTRA_DOCUMENTS;
        let is_small = SMALL_COLLECTIONS.contains(&&*operation.collection);
        if operation.count("docsExamined") > most && !is_small {
            self.faults.insert(format!("{phase}: examines too much: {}", operation.describe()));
        }
    }
}

async fn profile_operations(
    database: &Database,
    operations: impl Future<Output = ()>,
) -> Vec<Operation> {
    let name = "system.profile";
    let created = database.create_collection(name).capped(true).size(PROFILE_BYTES);
    created.await.unwrap();
    database.run_command(doc! { "profile": 2 }).await.unwrap();
    operations.await;
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>(name);
    // Only stores connect with this name, so the query leaves out the operations of this test.
    let found = profile.find(doc! { "appName": "faber" }).await.unwrap();
    let rows: Vec<Document> = found.try_collect().await.unwrap();
    profile.drop().await.unwrap();
    rows.into_iter().filter_map(Operation::from_profile).collect()
}

#[tokio::test]
async fn operations_are_targeted_and_bounded_as_the_design_says() {
    let url = Mongod::shared().await.new_database_url();
    let (store, other) = (Mongo::open(&url).await.unwrap(), Mongo::open(&url).await.unwrap());
    let database = Client::with_uri_str(&url).await.unwrap().default_database().unwrap();
    let mut checker = Checker::new();
    let work = workload::run_work(&store, &other, &database);
    for operation in profile_operations(&database, work).await {
        checker.check_shards("work", &operation);
        checker.check_index("work", &operation);
        checker.check_examined("work", &operation);
    }
    for (collection, key) in &checker.shard_keys {
        let documents = database.collection::<Document>(collection);
        let without_key = doc! { *key: { "$exists": false } };
        assert_eq!(documents.count_documents(without_key).await.unwrap(), 0, "{collection}");
        assert!(documents.find_one(doc! {}).await.unwrap().is_some(), "{collection} is empty");
    }
    for operation in profile_operations(&database, Box::pin(workload::read_lists(&store))).await {
        checker.check_shards("lists", &operation);
        if !operation.is_count() {
            checker.check_index("lists", &operation);
        }
    }
    for operation in profile_operations(&database, workload::run_retention(&store)).await {
        checker.check_shards("retention", &operation);
        checker.check_index("retention", &operation);
    }
    let faults: Vec<_> = checker.faults.iter().map(String::as_str).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(checker.used_fields, checker.scattered_fields, "the page lists unused fields");
    let sharded: BTreeSet<String> = checker.shard_keys.keys().map(ToString::to_string).collect();
    assert_eq!(checker.targeted_collections, sharded);
}

/// A unique index of a sharded collection must begin with the shard key, because a shard knows only
/// its own documents. No sharded collection has a unique index.
#[tokio::test]
async fn unique_indexes_of_sharded_collections_have_the_shard_key() {
    let url = Mongod::shared().await.new_database_url();
    drop(Mongo::open(&url).await.unwrap());
    let database = Client::with_uri_str(&url).await.unwrap().default_database().unwrap();
    let mut unique = Vec::new();
    for collection in database.list_collection_names().await.unwrap() {
        let indexes = database.collection::<Document>(&collection).list_indexes().await.unwrap();
        let indexes: Vec<_> = indexes.try_collect().await.unwrap();
        let is_unique = |index: &&mongodb::IndexModel| {
            index.options.as_ref().is_some_and(|options| options.unique == Some(true))
        };
        unique.extend(
            indexes.iter().filter(is_unique).map(|index| (collection.clone(), index.keys.clone())),
        );
    }
    assert_eq!(unique, [("plans".to_owned(), doc! { "requestId": 1, "version": 1 })]);
    assert!(!read_shard_keys().contains_key("plans"));
}

#[test]
fn a_range_of_the_whole_id_names_no_shard() {
    let range =
        doc! { "$gte": { "r": "a", "n": Bson::MinKey }, "$lt": { "r": "a", "n": Bson::MaxKey } };
    assert!(!is_targeted(&doc! { "_id": &range }, "_id.r"));
    assert!(is_targeted(&doc! { "_id": &range, "_id.r": "a" }, "_id.r"));
    assert!(is_targeted(&doc! { "_id": { "r": "a", "n": 1 } }, "_id.r"));
    assert!(!is_targeted(&doc! { "_id": { "$gt": "a" } }, "_id"));
    assert!(is_targeted(&doc! { "_id": { "$in": ["a", "b"] } }, "_id"));
    assert!(!is_targeted(&doc! { "state": "FAILED" }, "_id"));
}
