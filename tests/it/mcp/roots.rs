use serde_json::json;
use tests::{
    installed,
    toolset::{Connected, MAX_WAIT, wait_until},
};
use tokio::time::timeout;

use super::official_servers::server_script;

#[tokio::test]
async fn a_file_server_uses_the_roots_of_the_configuration() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = own.path().canonicalize().unwrap();
    let mcp = json!({
        "command": installed::find_program("node"),
        "args": [server_script("server-filesystem"), other.path().canonicalize().unwrap()],
        "roots": [root.join(".")],
    });
    let files = Connected::connect(&json!({ "mcp": mcp })).await;
    let path = root.join("a.txt");
    // The server asks for the roots at some time after its start. Until it has them, it allows the
    // folder in its arguments, so the test repeats the call.
    let asking = async {
        loop {
            let answer = files.call("list_allowed_directories", json!({})).await.unwrap();
            let allowed = answer.to_string();
            if allowed.contains(root.to_str().unwrap()) {
                return allowed;
            }
        }
    };
    let allowed = timeout(MAX_WAIT, asking).await.expect("the server asks for the roots");
    assert!(!allowed.contains(other.path().to_str().unwrap()), "{allowed}");
    files.call("write_file", json!({ "path": path, "content": "a" })).await.unwrap();
    wait_until("the file exists", || path.exists()).await;
}
