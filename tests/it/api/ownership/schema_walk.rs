//! Walks all root fields of the schema that take an id.

use super::*;

const INTROSPECTION: &str = "{ __schema { types { kind name
    enumValues { name }
    inputFields { name type { ...Type } }
    fields { name args { name defaultValue type { ...Type } } type { ...Type } } } } }
    fragment Type on __Type { kind name ofType { kind name ofType { kind name ofType { kind name } } } }";

/// Input objects whose ids are checked are at most this many levels deep.
const MAX_DEPTH: usize = 3;

/// Places whose id is not looked up: compiling a draft needs no request, a revision uses `planId`
/// instead, and a fork looks up its execution first.
const UNUSED: [&str; 3] = [
    "Query.validatePlan.input.requestId",
    "Mutation.revisePlan.input.requestId",
    "Mutation.forkExecution.planId",
];

struct SchemaTypes(Map<String, Value>);

impl SchemaTypes {
    async fn load(api: &TestApi) -> Self {
        let mut schema = api.ask(INTROSPECTION, json!({})).await;
        let types = schema["data"]["__schema"]["types"].take();
        let types = types.as_array().unwrap().iter();
        Self(types.map(|found| (json_to_text(&found["name"]), found.clone())).collect())
    }

    /// Returns the paths of all ids in an argument, such as `["filter", "planId"]`.
    fn find_ids(&self, field: &Value, depth: usize) -> Vec<Vec<String>> {
        let name = json_to_text(&field["name"]);
        let (type_name, _) = unwrap_type(&field["type"]);
        if type_name == "ID" || name == "plan" && type_name == "String" {
            return vec![vec![name]];
        }
        let inputs = self.0[type_name]["inputFields"].as_array();
        let is_walked = depth < MAX_DEPTH && name != "inlinePlan";
        let inputs = inputs.into_iter().flatten().filter(|_| is_walked);
        let below = inputs.flat_map(|input| self.find_ids(input, depth + 1));
        below.map(|path| [vec![name.clone()], path].concat()).collect()
    }

    /// Writes a value of a type, with only its required fields and the id at `path`.
    fn write_value(&self, kind: &Value, path: &[String], id: &str) -> String {
        let (name, is_list) = unwrap_type(kind);
        let value = match (name, path) {
            ("ID", _) | ("String", [_]) => format!("\"{id}\""),
            ("String", _) => "\"x\"".to_owned(),
            ("Int" | "Float", _) => "1".to_owned(),
            ("Boolean", _) => "true".to_owned(),
            _ => match &self.0[name] {
                found if found["kind"] == "ENUM" => json_to_text(&found["enumValues"][0]["name"]),
                found if found["kind"] == "INPUT_OBJECT" => {
                    let wanted = path.get(1);
                    let inputs = found["inputFields"].as_array().unwrap().iter();
                    let used = inputs.filter(|input| {
                        input["type"]["kind"] == "NON_NULL"
                            || wanted.is_some_and(|name| input["name"] == **name)
                    });
                    let written = used.map(|input| {
                        let is_wanted = wanted.is_some_and(|name| input["name"] == **name);
                        let rest = if is_wanted { &path[1..] } else { &[] };
                        let value = self.write_value(&input["type"], rest, id);
                        format!("{}: {value}", json_to_text(&input["name"]))
                    });
                    format!("{{ {} }}", written.collect::<Vec<_>>().join(", "))
                }
                _ => "{}".to_owned(),
            },
        };
        if is_list { format!("[{value}]") } else { value }
    }

    fn write_operation(&self, root: &str, field: &Value, path: &[String], id: &str) -> String {
        let args = field["args"].as_array().unwrap().iter();
        let used = args.filter(|arg| arg["type"]["kind"] == "NON_NULL" || arg["name"] == *path[0]);
        let written = used.map(|arg| {
            let rest = if arg["name"] == *path[0] { path } else { &[] };
            let value = self.write_value(&arg["type"], rest, id);
            format!("{}: {value}", json_to_text(&arg["name"]))
        });
        let (returned, _) = unwrap_type(&field["type"]);
        let fields = self.0[returned]["fields"].as_array();
        let selection = match fields {
            None => "",
            Some(fields) if fields.iter().any(|field| field["name"] == "totalCount") => {
                "{ totalCount }"
            }
            Some(fields) if fields.iter().any(|field| field["name"] == "diagnostics") => {
                "{ diagnostics { message } }"
            }
            Some(_) => "{ __typename }",
        };
        let args: Vec<String> = written.collect();
        let name = json_to_text(&field["name"]);
        format!("{} {{ {name}({}) {selection} }}", root.to_lowercase(), args.join(", "))
    }
}

/// Returns the name of a type without its wrappers, and whether it is a list.
fn unwrap_type(kind: &Value) -> (&str, bool) {
    let (mut inner, mut is_list) = (kind, false);
    while !inner["ofType"].is_null() {
        is_list |= inner["kind"] == "LIST";
        inner = &inner["ofType"];
    }
    (inner["name"].as_str().unwrap(), is_list)
}

fn choose_ids<'a>(foreign: &'a ForeignObjects, place: &str) -> [&'a str; 2] {
    let last = place.rsplit('.').next().unwrap();
    match last {
        "requestId" => [&foreign.objects.request, "req_1704123456_zzzzzzzzz"],
        "planId" | "plan" => [&foreign.objects.plan, "plan_1704123456_zzzzzzzzz"],
        "executionId" | "executionIds" | "ids" => {
            [&foreign.objects.execution, "exec_1704123456_zzzzzzzzz"]
        }
        "id" if place == "Query.node.id" => {
            [&foreign.objects.execution, "exec_1704123456_zzzzzzzzz"]
        }
        "id" => [&foreign.blob, &foreign.unknown_blob],
        _ => panic!("`{place}` takes an id: say here what it names"),
    }
}

struct ForeignObjects {
    objects: Owned,
    blob: String,
    unknown_blob: String,
}

impl ForeignObjects {
    async fn create(api: &TestApi, owner: &Grant) -> Self {
        let objects = run_one(api, owner, None).await;
        let hash = "0b".repeat(32);
        let id = BlobId::new(Some(objects.execution.parse().unwrap()), &hash).unwrap();
        let at = api.engine.clock().now();
        let blob = Blob { id, mime_type: "image/png".to_owned(), bytes: 3, at };
        blob::save_blob(&**api.engine.store(), &blob, "AQID").await.unwrap();
        let unknown_blob = format!("exec_1704123456_zzzzzzzzz/{hash}");
        Self { objects, blob: blob.id.to_string(), unknown_blob }
    }
}

async fn answer_text(api: &TestApi, caller: &Grant, operation: &str, id: &str) -> String {
    let answer = if operation.starts_with("subscription") {
        api.first_answer_as(caller, operation).await
    } else {
        api.ask_as(caller, operation, json!({})).await
    };
    answer.to_string().replace(id, "ID")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_root_field_answers_a_foreign_id_as_an_unknown_one() {
    let [ann, bob, _] = grants();
    let api = super::super::test_api::api().await;
    let types = SchemaTypes::load(&api).await;
    let mut places = Vec::new();
    for root in ["Query", "Subscription", "Mutation"] {
        for field in types.0[root]["fields"].as_array().unwrap() {
            let args = field["args"].as_array().unwrap();
            for path in args.iter().flat_map(|arg| types.find_ids(arg, 0)) {
                let place = format!("{root}.{}.{}", json_to_text(&field["name"]), path.join("."));
                let foreign = ForeignObjects::create(&api, &ann).await;
                let [known, unknown] = choose_ids(&foreign, &place);
                let write = |id: &str| types.write_operation(root, field, &path, id);
                let expected = answer_text(&api, &bob, &write(unknown), unknown).await;
                let answer = answer_text(&api, &bob, &write(known), known).await;
                assert_eq!(answer, expected, "{place}: {}", write(known));
                assert!(!expected.contains("Unknown argument"), "{place}: {expected}");
                // The owner gets another answer, unless the operation is forbidden or ignores the
                // id. So the comparison above can fail.
                let is_forbidden = expected.contains("FORBIDDEN");
                let own_answer = answer_text(&api, &ann, &write(known), known).await;
                let is_unused = UNUSED.contains(&place.as_str());
                assert!(is_forbidden || is_unused || own_answer != expected, "{place}: {expected}");
                places.push(place);
            }
        }
    }
    for place in [
        "Query.execution.executionId",
        "Query.plans.filter.requestId",
        "Query.executionCounts.filter.planId",
        "Query.blob.id",
        "Subscription.requestEvents.requestId",
        "Mutation.approveStep.executionId",
        "Mutation.createPlan.input.requestId",
    ] {
        assert!(places.iter().any(|found| found == place), "{place}: {places:#?}");
    }
}
