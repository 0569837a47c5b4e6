use std::sync::Arc;

use serde_json::{Value, json};
use shared::limits;
use toolbox::{ReadyTool, Tool, ToolContext};

use super::*;

fn shop_documents() -> Value {
    json!({
        "manual": {
            "description": "How things work.",
            "documents": [
                { "id": "returns", "content": "Goods can be returned within thirty days.",
                  "metadata": { "source": "web", "category": "service" } },
                { "content": "Tea is sent the same day. Cups are sent the next day." },
                { "id": "cups", "content": "Cups: cups of clay, cups of glass." },
            ],
        },
        "notes": [{ "content": "The cellar is damp." }],
    })
}

fn document_tools(context: &str, written: &Value) -> Vec<Arc<dyn Tool>> {
    let documents = Arc::new(Documents::read(context, written).unwrap());
    tools(&Documents::set_name_for_context(context).unwrap(), &documents, limits::OUTPUT_BYTES)
}

async fn call(tools: &[Arc<dyn Tool>], name: &str, parameters: Value) -> Result<Value, String> {
    let tool = tools.iter().find(|tool| tool.definition().name.as_str() == name).unwrap();
    if let Some(reason) = ReadyTool::new(Arc::clone(tool)).complaint(&parameters) {
        return Err(reason);
    }
    let called = tool.call(Arc::new(parameters), ToolContext::detached()).await;
    called.map_err(|err| err.message.to_string())
}

#[tokio::test]
async fn a_query_returns_the_nearest_documents() {
    let tools = document_tools("shop", &shop_documents());
    let listed = call(&tools, "list_rags", json!({})).await.unwrap();
    let expected = json!([
        { "id": "manual", "description": "How things work.", "documents": 3 },
        { "id": "notes", "description": "", "documents": 1 },
    ]);
    assert_eq!(listed, expected);
    let ask = async |more: Value| {
        let mut query = json!({ "ragId": "manual", "query": "When are CUPS sent?" });
        for (key, value) in more.as_object().unwrap() {
            query[key] = value.clone();
        }
        call(&tools, "query_rag", query).await.unwrap()
    };
    let ids = |found: &Value| -> Vec<String> {
        found
            .as_array()
            .unwrap()
            .iter()
            .map(|document| document["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let found = ask(json!({})).await;
    assert_eq!(ids(&found), ["doc_2", "cups"], "{found}");
    let near = |n: usize| found[n]["similarity"].as_f64().unwrap();
    assert!(near(0) > near(1) && near(0) < 1.0 && near(1) > 0.0, "{found}");
    assert_eq!(ids(&ask(json!({ "limit": 1 })).await), ["doc_2"]);
    assert_eq!(ids(&ask(json!({ "similarityThreshold": near(0) })).await), ["doc_2"]);
    assert_eq!(ids(&ask(json!({ "query": "zebra" })).await), [""; 0]);
    let same = ask(json!({ "query": "Goods can be returned within thirty days" })).await;
    assert!((same[0]["similarity"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{same}");
    assert_eq!(same[0]["metadata"], json!({ "source": "web", "category": "service" }));
    let bare = ask(json!({ "query": "goods", "includeMetadata": false })).await;
    assert!(bare[0].get("metadata").is_none(), "{bare}");
    let wrong =
        call(&tools, "query_rag", json!({ "ragId": "manual", "query": "x", "limit": 0 })).await;
    assert!(wrong.is_err(), "{wrong:?}");
}

#[tokio::test]
async fn a_context_reads_only_its_own_documents() {
    let (shop, admin) = (
        document_tools("shop", &shop_documents()),
        document_tools("admin", &json!({ "secret": [{ "content": "x" }] })),
    );
    let ask = |id: &str| json!({ "ragId": id, "query": "x" });
    for (tools, id, context) in [(&shop, "secret", "shop"), (&admin, "manual", "admin")] {
        let expected = format!("RAG with ID {id} not found in context {context}");
        assert_eq!(call(tools, "query_rag", ask(id)).await, Err(expected.clone()));
        assert_eq!(call(tools, "load_rag", json!({ "ragId": id })).await, Err(expected));
    }
    let definition = Arc::clone(admin[0].definition());
    assert_eq!(definition.qualified_name().as_str(), "admin_rag.list_rags");
}

#[tokio::test]
async fn a_large_collection_is_loaded_up_to_the_limit() {
    let tools = document_tools("shop", &shop_documents());
    let text = call(&tools, "load_rag", json!({ "ragId": "notes" })).await.unwrap();
    assert_eq!(text, "## doc_1\n\nThe cellar is damp.");
    let long: Vec<Value> = (0..100).map(|_| json!({ "content": "x".repeat(1 << 10) })).collect();
    let documents = Arc::new(Documents::read("c", &json!({ "long": long })).unwrap());
    let tools = super::tools(&Documents::set_name_for_context("c").unwrap(), &documents, 64 << 10);
    let text = call(&tools, "load_rag", json!({ "ragId": "long" })).await.unwrap();
    let text = text.as_str().unwrap();
    assert!(text.len() <= 33 << 10, "{}", text.len());
    assert!(text.ends_with("more documents: search them with `query_rag`)"), "{text}");
}

#[test]
fn wrong_documents_are_explained() {
    for (written, reason) in [
        (json!([]), "`rag` must be a map from ids to collections of documents"),
        (json!({ "a": 1 }), "`rag.a`: invalid type: integer `1`, expected documents, or an object"),
        (json!({ "a": [1] }), "`rag.a`: invalid type: integer `1`, expected a document such as `{"),
        (
            json!({ "a": [{ "id": "x", "content": "" }, { "id": "x", "content": "" }] }),
            "`rag.a`: two documents have the id `x`",
        ),
        (
            json!({ "a": [{ "id": "doc_2", "content": "" }, { "content": "" }] }),
            "`rag.a`: two documents have the id `doc_2`",
        ),
        (json!({ "a": [{ "text": "x" }] }), "`rag.a`: unknown field `text`"),
        (json!({ "a": [{ "id": "x" }] }), "`rag.a`: missing field `content`"),
        (json!({ "a": { "document": [] } }), "`rag.a`: unknown field `document`"),
    ] {
        let err = Documents::read("c", &written).unwrap_err();
        assert!(err.starts_with(reason), "{written}: {err}");
    }
    assert!(Documents::set_name_for_context("my shop!").is_err());
}
