use expect_test::{Expect, expect};
use serde_json::json;
use shared::clock::Timestamp;

use super::*;

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_timestamp(1_704_123_456, 0).expect("a moment")
    }
}

struct World {
    blog: Blog,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep").join("blog.json");
        Self { blog: Blog::new(file, Arc::new(FixedClock)), _folder: folder }
    }

    fn try_call(&self, name: &str, arguments: &Value) -> Result<Value, CallError> {
        let arguments = arguments.as_object().cloned().unwrap();
        self.blog.call(name, arguments).map(|answer| answer.value)
    }

    fn call(&self, name: &str, arguments: &Value) -> Value {
        self.try_call(name, arguments).unwrap()
    }

    fn create_alice(&self) -> Value {
        self.call("createAuthor", &json!({ "name": "Alice", "email": "alice@test.com" }))
    }

    #[expect(clippy::needless_pass_by_value, reason = "expectations read best inline")]
    fn check_refused(&self, name: &str, arguments: &Value, expected: Expect) {
        expected.assert_eq(&self.try_call(name, arguments).unwrap_err().to_string());
    }
}

const UNKNOWN_ID: &str = "ffffffffffffffffffffffff";

#[test]
fn a_blog_is_created_read_updated_and_deleted() {
    let world = World::new();
    let alice = world.create_alice();
    let blog = json!({ "title": "Größe 🎉", "content": "about", "authorId": alice["_id"] });
    let blog = world.call("createBlog", &blog);
    assert_eq!(blog["authorId"], alice["_id"]);
    assert_eq!(blog["createdAt"], "2024-01-01T15:37:36.000Z");
    let id = json!({ "id": blog["_id"] });
    assert_eq!(world.call("getBlog", &id), blog);

    let changed = world.call("updateBlog", &json!({ "id": blog["_id"], "title": "New" }));
    assert_eq!((&changed["title"], &changed["content"]), (&json!("New"), &json!("about")));
    assert_eq!(world.call("listBlogs", &json!({})), json!([changed]));

    let comment = json!({ "blogId": blog["_id"], "authorId": alice["_id"], "content": "c" });
    let comment = world.call("createComment", &comment);
    let picture = json!({ "blogId": blog["_id"], "url": "https://example.com/a.png" });
    let picture = world.call("createPicture", &picture);
    let of_blog = json!({ "blogId": blog["_id"] });
    assert_eq!(world.call("listCommentsByBlog", &of_blog), json!([comment]));
    assert_eq!(world.call("listPicturesByBlog", &of_blog), json!([picture]));
    assert_eq!(world.call("listPicturesByBlog", &json!({ "blogId": UNKNOWN_ID })), json!([]));

    for _ in 0..2 {
        assert_eq!(world.call("deleteBlog", &id), json!({ "success": true }));
    }
    assert_eq!(world.call("getBlog", &id), Value::Null);
}

#[test]
fn duplicate_and_dangling_records_are_rejected() {
    let world = World::new();
    let alice = world.create_alice();
    let twin = json!({ "name": "Al", "email": "Alice@test.com" });
    let id = alice["_id"].as_str().unwrap();
    let err = world.try_call("createAuthor", &twin).unwrap_err().to_string().replace(id, "ID");
    expect![
        "the author `Alice` (`ID`) has the e-mail address `Alice@test.com` already: choose another"
    ]
    .assert_eq(&err);
    let blog = json!({ "title": "t", "content": "c", "authorId": UNKNOWN_ID });
    world.check_refused(
        "createBlog",
        &blog,
        expect!["there is no author with the id `ffffffffffffffffffffffff`"],
    );
    world.check_refused(
        "updateAuthor",
        &json!({ "id": UNKNOWN_ID, "name": "x" }),
        expect!["there is no author with the id `ffffffffffffffffffffffff`"],
    );
    world.check_refused(
        "getAuthor",
        &json!({ "id": "x" }),
        expect![[r#"at `/id`: "x" does not match "^[0-9a-fA-F]{24}$""#]],
    );
    world.check_refused(
        "createAuthor",
        &json!({ "email": "x", "age": 1 }),
        expect![[r#""name" is a required property; at `/email`: "x" does not match "^[^@\s]+@[^@\s]+$"; Additional properties are not allowed ('age' was unexpected)"#]],
    );
    world.check_refused("getWeather", &json!({}), expect!["Unknown tool: getWeather"]);
    assert_eq!(world.call("listAuthors", &json!({})), json!([alice]));
}

#[test]
fn an_update_may_repeat_the_authors_own_email() {
    let world = World::new();
    let alice = world.create_alice();
    let same = json!({ "id": alice["_id"], "email": "alice@test.com", "bio": "b" });
    assert_eq!(world.call("updateAuthor", &same)["bio"], "b");
    world.call("createAuthor", &json!({ "name": "Bob", "email": "bob@test.com" }));
    let taken = json!({ "id": alice["_id"], "email": "bob@test.com" });
    assert!(matches!(
        world.try_call("updateAuthor", &taken),
        Err(CallError::Refused(Refusal::EmailTaken { .. }))
    ));
}

#[test]
fn outputs_fit_their_schemas() {
    let world = World::new();
    let alice = world.create_alice();
    for offer in OFFERS {
        assert_eq!(offer.tool().name, offer.name);
    }
    let create = OFFERS.iter().find(|tool| tool.name == "createAuthor").unwrap();
    let schema = Value::Object(create.output_schema().unwrap());
    assert_eq!(Schema::new(&schema).unwrap().complaint(&alice), None);
    assert_eq!(OFFERS.len(), 18);
}

#[test]
fn parallel_writers_keep_each_others_records() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blog.json");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let blog = Blog::new(file.clone(), Arc::new(FixedClock));
            scope.spawn(move || {
                for n in 0..10 {
                    let email = format!("{writer}.{n}@test.com");
                    let author = json!({ "name": "x", "email": email });
                    blog.call("createAuthor", author.as_object().cloned().unwrap()).unwrap();
                }
            });
        }
    });
    let blog = Blog::new(file, Arc::new(FixedClock));
    let all = blog.call("listAuthors", Map::new()).unwrap().value;
    assert_eq!(all.as_array().unwrap().len(), 40);
}

#[test]
fn a_file_of_another_format_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blog.json");
    std::fs::write(&file, "{\"else\": 1}").unwrap();
    let blog = Blog::new(file.clone(), Arc::new(FixedClock));
    let author = json!({ "name": "x", "email": "x@test.com" });
    let err = blog.call("createAuthor", author.as_object().cloned().unwrap()).unwrap_err();
    assert!(err.to_string().contains("is not a file of the blog server"), "{err}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "{\"else\": 1}");
}
