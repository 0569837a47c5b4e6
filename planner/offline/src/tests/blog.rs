use expect_test::expect;

use super::*;

fn id(of: &str) -> Value {
    json!({ "type": "string", "description": format!("The `_id` of the {of}.") })
}

pub(super) fn blog() -> Catalog {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let email = json!({ "type": "string", "format": "email" });
    catalog(vec![
        tool(
            "createAuthor",
            "Create a new author.",
            json!({ "name!": text("What the author is called."), "email!": email, "bio": text("A few words about the author.") }),
        ),
        tool("getAuthor", "Get an author.", json!({ "id!": id("author") })),
        tool(
            "updateAuthor",
            "Change an author.",
            json!({ "id!": id("author"), "name": text("A new name."), "email": email, "bio": text("A new biography.") }),
        ),
        tool("deleteAuthor", "Delete an author.", json!({ "id!": id("author") })),
        tool("listAuthors", "List all authors.", json!({})),
        tool(
            "createBlog",
            "Create a new blog post.",
            json!({ "title!": text("The headline."), "content!": text("What the post says."), "authorId!": id("author") }),
        ),
        tool("getBlog", "Get a blog post.", json!({ "id!": id("blog post") })),
        tool(
            "updateBlog",
            "Change a blog post.",
            json!({ "id!": id("blog post"), "title": text("A new headline."), "content": text("A new text.") }),
        ),
        tool("deleteBlog", "Delete a blog post.", json!({ "id!": id("blog post") })),
        tool("listBlogs", "List all blog posts.", json!({})),
        tool(
            "createComment",
            "Create a comment on a blog post.",
            json!({ "blogId!": id("blog post"), "authorId!": id("author"), "content!": text("What the comment says.") }),
        ),
        tool("getComment", "Get a comment.", json!({ "id!": id("comment") })),
        tool("deleteComment", "Delete a comment.", json!({ "id!": id("comment") })),
        tool(
            "listCommentsByBlog",
            "List all comments on a blog post.",
            json!({ "blogId!": id("blog post") }),
        ),
        tool(
            "createPicture",
            "Add a picture to a blog post.",
            json!({ "blogId!": id("blog post"), "url!": json!({ "type": "string", "format": "uri" }), "caption": text("What stands below it.") }),
        ),
        tool("getPicture", "Get a picture.", json!({ "id!": id("picture") })),
        tool("deletePicture", "Delete a picture.", json!({ "id!": id("picture") })),
        tool(
            "listPicturesByBlog",
            "List all pictures of a blog post.",
            json!({ "blogId!": id("blog post") }),
        ),
    ])
}

#[test]
#[expect(clippy::too_many_lines, reason = "one query after the other")]
fn queries_of_the_documentation() {
    let tools = blog();
    check(
        &tools,
        "Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@test.com"}
            createBlog {"title":"Hello","content":"about world","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Bob with email bob@example.com, then create blog by Bob titled Salt about the sea",
        expect![[r#"
            createAuthor {"name":"Bob","email":"bob@example.com"}
            createBlog {"title":"Salt","content":"about the sea","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email alice@test.com",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@test.com"}
    "#]],
    );
    check(
        &tools,
        "Create authors Alice (alice@x.com) and Bob (bob@x.com), then create blog by Alice titled Hi saying hello",
        expect![[r#"
            createAuthor = createAuthor {"name":"Alice","email":"alice@x.com"}
            createAuthor_2 = createAuthor {"name":"Bob","email":"bob@x.com"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"} after "createAuthor_2"
        "#]],
    );
    check(
        &tools,
        "Create author Sarah with email sarah@dev.com, then create blog titled Rust Guide about Rust programming by Sarah",
        expect![[r#"
            createAuthor {"name":"Sarah","email":"sarah@dev.com"}
            createBlog {"title":"Rust Guide","content":"about Rust programming","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "List all authors",
        expect![[r"
        listAuthors {}
    "]],
    );
    check(
        &tools,
        "list authors",
        expect![[r"
        listAuthors {}
    "]],
    );
    check(
        &tools,
        "list all blogs",
        expect![[r"
        listBlogs {}
    "]],
    );
    check(
        &tools,
        "get blog 507f1f77bcf86cd799439011",
        expect![[r#"
        getBlog {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "delete author 507f1f77bcf86cd799439011",
        expect![[r#"
        deleteAuthor {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "Create author Dave with email dave@x.com, then create blog by Dave titled Go about go, then create comment on that blog by Dave saying Great post!",
        expect![[r#"
            createAuthor {"name":"Dave","email":"dave@x.com"}
            createBlog {"title":"Go","content":"about go","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Great post!"}
        "#]],
    );
    check(
        &tools,
        "update author 507f1f77bcf86cd799439011 with name Ann",
        expect![[r#"
        updateAuthor {"id":"507f1f77bcf86cd799439011","name":"Ann"}
    "#]],
    );
    check(
        &tools,
        "list the comments on blog 507f1f77bcf86cd799439011",
        expect![[r#"
        listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "Create author Charlie",
        expect![[r"
        no plan: `email` of `createAuthor` is missing in `Create author Charlie`: add `with email …`
    "]],
    );
    check(
        &tools,
        "Should I delete author 507f1f77bcf86cd799439011?",
        expect![[r"
        no plan: `Should I delete author 507f1f77bcf86cd799439011` only asks about an action: say it as an order
    "]],
    );
    check(
        &tools,
        "get blog 507f1f77bcf86cd799439011 and email its title to sam@x.com",
        expect![[r"
            no plan: no tool fits `email its title to sam@x.com`: begin with what to do and what with (`faber tools list` shows what there is)
        "]],
    );
    check(
        &tools,
        "make an author",
        expect![[r"
        no plan: `name` (What the author is called) and `email` of `createAuthor` are missing in `make an author`: add `with name …`
    "]],
    );
    check(
        &tools,
        "Create a blog post about TypeScript",
        expect![[r"
            no plan: `title` (The headline) and `authorId` (The `_id` of the author) of `createBlog` are missing in `Create a blog post about TypeScript`: add `with title …`
        "]],
    );
    check(
        &tools,
        "Archive the blog Salt",
        expect![[r"
        no plan: no tool fits `Archive the blog Salt`: begin with what to do and what with (`faber tools list` shows what there is)
    "]],
    );
}

#[test]
fn an_unknown_verb_is_named_and_not_taken_for_a_value() {
    check(
        &blog(),
        "Create author Alice with email a@b.c, then fry the author in butter",
        expect![[r"
            no plan: no tool fits `fry the author in butter`: begin with what to do and what with (`faber tools list` shows what there is)
        "]],
    );
}

#[test]
fn a_list_has_no_id_and_a_told_order_is_not_left_out() {
    check(
        &blog(),
        "List the authors and delete them",
        expect![[r"
        no plan: no tool fits `delete them`: begin with what to do and what with (`faber tools list` shows what there is)
    "]],
    );
    check(
        &blog(),
        "Before you create an author named Bo, delete the author 507f1f77bcf86cd799439011",
        expect![[r"
            no plan: no tool fits `Before you create an author named Bo`: begin with what to do and what with (`faber tools list` shows what there is)
        "]],
    );
}

#[test]
fn a_refusal_notes_the_parts_with_and_without_steps() {
    let query = "Create author Alice with email a@b.c, then fry the author, then list the blogs";
    let Err(PlanningError::NoPlan { notes, .. }) = propose(query, &blog()) else {
        panic!("nothing can fry")
    };
    let candidates = notes.into_iter().find(|note| note.kind == "candidates").unwrap().content;
    let parts: Vec<String> = candidates
        .as_array()
        .unwrap()
        .iter()
        .map(|part| format!("{} → {}", part["clause"], part["steps"]))
        .collect();
    expect![[r#"
        [
            "\"Create author Alice with email a@b.c\" → [{\"step\":\"createAuthor\"}]",
            "\"fry the author\" → []",
            "\"list the blogs\" → null",
        ]
    "#]]
    .assert_debug_eq(&parts);
}

#[test]
fn a_refusal_is_certain_only_if_the_query_itself_forbids_a_plan() {
    for (query, expected) in [
        ("Don't delete author 507f1f77bcf86cd799439011", true),
        ("Should I delete author 507f1f77bcf86cd799439011?", true),
        ("Delete the author", true),
        ("I deleted author 507f1f77bcf86cd799439011 yesterday", false),
        ("Fry the author", false),
        ("Lösche den Autor mit der Nummer sieben", false),
    ] {
        let Err(PlanningError::NoPlan { is_certain, message, .. }) = propose(query, &blog()) else {
            panic!("{query} has a plan")
        };
        assert_eq!(is_certain, expected, "{query}: {message}");
    }
}
