use expect_test::expect;
use serde_json::{Value, json};
use shared::tool::Effect;
use tests::{binary, toolset::Connected};

struct Blog {
    connected: Connected,
    folder: tempfile::TempDir,
}

impl Blog {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let connected = Connected::connect(&demo_source(&folder)).await;
        Self { connected, folder }
    }

    async fn call(&self, name: &str, parameters: Value) -> Value {
        self.connected.call(name, parameters).await.expect("the call succeeds")
    }
}

fn demo_source(folder: &tempfile::TempDir) -> Value {
    let file = folder.path().join("blog.json");
    json!({ "mcp": { "command": binary::faber(), "args": ["blog-mcp", "--file", file] } })
}

#[tokio::test]
async fn the_demo_server_lists_its_tools_with_their_effects() {
    let blog = Blog::new().await;
    let sets = blog.connected.toolbox.sets();
    let mut lines: Vec<_> = sets[0]
        .tools
        .iter()
        .map(|tool| {
            let definition = tool.definition();
            let output = if definition.output_schema.is_some() { " -> object" } else { "" };
            let required = definition.input_schema["required"].as_array().unwrap().iter();
            let required: Vec<_> = required.filter_map(Value::as_str).collect();
            format!(
                "{} {:?} ({}){output}\n",
                definition.name,
                definition.effect,
                required.join(" ")
            )
        })
        .collect();
    lines.sort();
    expect![[r"
        createAuthor Once (name email) -> object
        createBlog Once (title content authorId) -> object
        createComment Once (blogId authorId content) -> object
        createPicture Once (blogId url) -> object
        deleteAuthor Idempotent (id) -> object
        deleteBlog Idempotent (id) -> object
        deleteComment Idempotent (id) -> object
        deletePicture Idempotent (id) -> object
        getAuthor Read (id)
        getBlog Read (id)
        getComment Read (id)
        getPicture Read (id)
        listAuthors Read ()
        listBlogs Read ()
        listCommentsByBlog Read (blogId)
        listPicturesByBlog Read (blogId)
        updateAuthor Idempotent (id) -> object
        updateBlog Idempotent (id) -> object
    "]]
    .assert_eq(&lines.concat());
    assert_eq!(blog.connected.tool("getBlog").definition().effect, Effect::Read);
}

#[tokio::test]
async fn values_of_the_demo_server_keep_their_type() {
    let blog = Blog::new().await;
    assert_eq!(blog.call("listAuthors", json!({})).await, json!([]));
    let author = json!({ "name": "Zoë", "email": "zoe@example.com" });
    let author = blog.call("createAuthor", author).await;
    assert_eq!(author["_id"].as_str().unwrap().len(), 24);
    let id = json!({ "id": author["_id"] });
    assert_eq!(blog.call("getAuthor", id.clone()).await, author);
    assert_eq!(blog.call("listAuthors", json!({})).await, json!([author]));
    assert_eq!(blog.call("deleteAuthor", id.clone()).await, json!({ "success": true }));
    assert_eq!(blog.call("getAuthor", id).await, Value::Null);
}

#[tokio::test]
async fn a_refusal_of_the_demo_server_is_a_failure_with_its_reason() {
    let blog = Blog::new().await;
    let author = json!({ "name": "Al", "email": "al@example.com" });
    let first = blog.call("createAuthor", author.clone()).await;
    let err = blog.connected.call("createAuthor", author).await.unwrap_err();
    let id = first["_id"].as_str().unwrap();
    expect!["tool.failed: the author `Al` (`ID`) has the e-mail address `al@example.com` already: choose another"]
        .assert_eq(&err.to_string().replace(id, "ID"));
    let err = blog.connected.call("getAuthor", json!({ "id": "x" })).await.unwrap_err();
    expect![[r#"tool.invalid_parameters: at `/id`: "x" does not match "^[0-9a-fA-F]{24}$""#]]
        .assert_eq(&err.to_string());
}

#[tokio::test]
async fn two_demo_servers_share_one_file() {
    let first = Blog::new().await;
    let second = Connected::connect(&demo_source(&first.folder)).await;
    let author = |n: usize| json!({ "name": "x", "email": format!("{n}@example.com") });
    let calls = (0..40).map(|n| {
        let server = if n % 2 == 0 { &first.connected } else { &second };
        server.call("createAuthor", author(n))
    });
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    let all = first.call("listAuthors", json!({})).await;
    assert_eq!(all.as_array().unwrap().len(), 40);
}
