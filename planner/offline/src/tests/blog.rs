//! The tools of a blog, as a document store offers them.

mod changes;
mod mixed;
mod paraphrases;
mod reads;
mod references;
mod refusals;
mod texts;

use expect_test::expect;

use super::*;

fn id(of: &str) -> Value {
    json!({ "type": "string", "description": format!("The `_id` of the {of}.") })
}

/// The eighteen tools of a blog.
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
fn seed_example() {
    let tools = blog();
    check(
        &tools,
        "Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@test.com"}
            createBlog {"title":"Hello","content":"about world","authorId":"{{createAuthor._id}}"}
        "#]],
    );
}

#[test]
fn facts() {
    let tools = blog();
    check(
        &tools,
        "Create author Bob with email bob@example.com, then create blog by Bob titled My First Blog about getting started",
        expect![[r#"
            createAuthor {"name":"Bob","email":"bob@example.com"}
            createBlog {"title":"My First Blog","content":"about getting started","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Charlie, create blog by Charlie, then create comment on that blog by Charlie saying Great post!",
        expect![[r#"
            createAuthor {"name":"Charlie","email":"charlie@example.com"}
            createBlog {"title":"Blog by Charlie","content":"Blog by Charlie","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Great post!"}
            warning[plan.assumed_parameter] tools[0].parameters.email: `email` was not given; assumed `charlie@example.com` (add `with email somebody@example.com`)
            warning[plan.assumed_parameter] tools[1].parameters.title: `title` was not given; assumed `Blog by Charlie` (add `titled …`)
            warning[plan.assumed_parameter] tools[1].parameters.content: `content` was not given; assumed `Blog by Charlie` (add `saying …`)
        "#]],
    );
    check(
        &tools,
        "Create authors Alice (alice@x.com) and Bob (bob@x.com), then create blog by Alice titled Hi saying hello",
        expect![[r#"
            createAuthor = createAuthor {"name":"Alice","email":"alice@x.com"}
            createAuthor_2 = createAuthor {"name":"Bob","email":"bob@x.com"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Dave with email dave@example.com, then create blog about Go by Dave",
        expect![[r#"
            createAuthor {"name":"Dave","email":"dave@example.com"}
            createBlog {"title":"Go","content":"about Go","authorId":"{{createAuthor._id}}"}
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
        "Create a blog post about TypeScript",
        expect![[r#"
        no plan: `authorId` of `createBlog` is missing in `Create a blog post about TypeScript`: make the author in an earlier clause and say `by` or `on` it, or give its id: `author 507f1f77bcf86cd799439011`
        nearest: createBlog
    "#]],
    );
    check(
        &tools,
        "Create author, then blog by author, then comment on blog",
        expect![[r#"
        no plan: `name` of `createAuthor` is missing in `Create author`: add `named …`;
          `email` of `createAuthor` is missing: add `with email somebody@example.com`;
          `title` of `createBlog` is missing in `blog by author`: add `titled …`;
          `content` of `createBlog` is missing: add `saying …`;
          `content` of `createComment` is missing in `comment on blog`: add `saying …`
        nearest: createAuthor createBlog createComment
    "#]],
    );
    check(
        &tools,
        "Create authors Alice and Bob simultaneously",
        expect![[r#"
            createAuthor = createAuthor {"name":"Alice","email":"alice@example.com"}
            createAuthor_2 = createAuthor {"name":"Bob","email":"bob@example.com"}
            warning[plan.assumed_parameter] tools[0].parameters.email: `email` was not given; assumed `alice@example.com` (add `with email somebody@example.com`)
            warning[plan.assumed_parameter] tools[1].parameters.email: `email` was not given; assumed `bob@example.com` (add `with email somebody@example.com`)
        "#]],
    );
}
