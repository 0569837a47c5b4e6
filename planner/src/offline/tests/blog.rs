//! The tools of a blog, as a document store offers them.

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
          `email` of `createAuthor` is missing in `Create author`: add `with email somebody@example.com`;
          `title` of `createBlog` is missing in `blog by author`: add `titled …`;
          `content` of `createBlog` is missing in `blog by author`: add `saying …`;
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

#[test]
fn case_and_politeness() {
    let tools = blog();
    check(
        &tools,
        "CREATE AUTHOR ALICE WITH EMAIL ALICE@TEST.COM, THEN CREATE BLOG BY ALICE TITLED HELLO ABOUT WORLD",
        expect![[r#"
            createAuthor {"name":"ALICE","email":"ALICE@TEST.COM"}
            createBlog {"title":"HELLO","content":"ABOUT WORLD","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "create author alice with email alice@test.com then create blog by alice titled hello about world",
        expect![[r#"
            createAuthor {"name":"alice","email":"alice@test.com"}
            createBlog {"title":"hello","content":"about world","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Please create an author named Alice with email alice@test.com.",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@test.com"}
    "#]],
    );
    check(
        &tools,
        "Can you create an author called Alice (alice@test.com), please?",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@test.com"}
    "#]],
    );
    check(
        &tools,
        "I want to add a new author Alice, email alice@test.com",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@test.com"}
    "#]],
    );
    check(
        &tools,
        r#"I'd like you to register author "Alice Cooper" with the email alice@test.com and bio Rock star"#,
        expect![[r#"
            createAuthor {"name":"Alice Cooper","email":"alice@test.com","bio":"Rock star"}
        "#]],
    );
    check(
        &tools,
        "Could you please make a new author: Alice, alice@test.com?",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@test.com"}
    "#]],
    );
}

#[test]
fn paraphrases() {
    let tools = blog();
    check(
        &tools,
        r#"Add a new author called Bob Smith (bob@x.io) and write a post by him titled "A, B and C" with content "one, two; then three.""#,
        expect![[r#"
            createAuthor {"name":"Bob Smith","email":"bob@x.io"}
            createBlog {"title":"A, B and C","content":"one, two; then three.","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "a blog titled X by Alice after creating author Alice with email alice@x.com",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@x.com"}
            createBlog {"title":"X","content":"X","authorId":"{{createAuthor._id}}"}
            warning[plan.assumed_parameter] tools[1].parameters.content: `content` was not given; assumed `X` (add `saying …`)
        "#]],
    );
    check(
        &tools,
        "After creating author Alice with email alice@x.com, create a blog by her titled X saying hi",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@x.com"}
            createBlog {"title":"X","content":"hi","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Ann with email ann@x.io. Then write a blog post titled Rust in Action with content Learn Rust, step by step. Finally comment on it as Ann",
        expect![[r#"
            no plan: `content` of `createComment` is missing in `comment on it as Ann`: add `saying …`
            nearest: createComment
        "#]],
    );
    check(
        &tools,
        "Create author Ann with email ann@x.io. Then write a blog post titled Rust in Action with content Learn Rust, step by step. After that, leave a comment on it by Ann saying Well done.",
        expect![[r#"
            createAuthor {"name":"Ann","email":"ann@x.io"}
            createBlog {"title":"Rust in Action","content":"Learn Rust, step by step","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Well done"}
            warning[plan.assumed_parameter] tools[1].parameters.authorId: `authorId` was not given; assumed `{{createAuthor._id}}` (say which author is meant, by its name or its id)
        "#]],
    );
    check(
        &tools,
        "1. Create author Ann with email ann@x.io\n2. Create blog by Ann titled One saying first\n3. Create blog by Ann titled Two saying second",
        expect![[r#"
            createAuthor {"name":"Ann","email":"ann@x.io"}
            createBlog = createBlog {"title":"One","content":"first","authorId":"{{createAuthor._id}}"}
            createBlog_2 = createBlog {"title":"Two","content":"second","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "- create author Ann, email ann@x.io\n- create blog by her titled One, content: first",
        expect![[r#"
            createAuthor {"name":"Ann","email":"ann@x.io"}
            createBlog {"title":"One","content":"first","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Ann with email ann@x.io; create blog by Ann titled Salt, Pepper and Oil about cooking, then add a picture to that blog with url https://x.io/p.png and caption Spices",
        expect![[r#"
            createAuthor {"name":"Ann","email":"ann@x.io"}
            createBlog {"title":"Salt, Pepper and Oil","content":"about cooking","authorId":"{{createAuthor._id}}"}
            createPicture {"blogId":"{{createBlog._id}}","url":"https://x.io/p.png","caption":"Spices"}
        "#]],
    );
    check(
        &tools,
        "Create a blog by author 507f1f77bcf86cd799439011 titled Hello saying world",
        expect![[r#"
            createBlog {"title":"Hello","content":"world","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create a blog by 507f1f77bcf86cd799439011 titled Hello saying world",
        expect![[r#"
            createBlog {"title":"Hello","content":"world","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        r#"Write a blog post called Hello with text "Hi, there" for author 507f1f77bcf86cd799439011"#,
        expect![[r#"
            createBlog {"title":"Hello","content":"Hi, there","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice (a@x.io) and author Bob (b@x.io), then create blog by Bob titled B saying b, then create blog by Alice titled A saying a, then comment on Bob's blog by Alice saying nice",
        expect![[r#"
            createAuthor = createAuthor {"name":"Alice","email":"a@x.io"}
            createAuthor_2 = createAuthor {"name":"Bob","email":"b@x.io"}
            createBlog = createBlog {"title":"B","content":"b","authorId":"{{createAuthor_2._id}}"}
            createBlog_2 = createBlog {"title":"A","content":"a","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"nice"}
        "#]],
    );
    check(
        &tools,
        "Create authors Alice, Bob and Carol with emails a@x.io, b@x.io and c@x.io",
        expect![[r#"
            createAuthor = createAuthor {"name":"Alice","email":"a@x.io"}
            createAuthor_2 = createAuthor {"name":"Bob","email":"b@x.io"}
            createAuthor_3 = createAuthor {"name":"Carol","email":"c@x.io"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, create blog by Alice titled Hi saying hello, then comment: Great! on it by Alice",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Great!"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io and then blog by Alice titled Hi saying hello and then comment on that blog by Alice saying lovely",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"lovely"}
        "#]],
    );
    check(
        &tools,
        "Create author J. Smith with email j@x.io.",
        expect![[r#"
            createAuthor {"name":"J. Smith","email":"j@x.io"}
        "#]],
    );
    check(
        &tools,
        "New author: name Alice, email alice@test.com, bio Writes things",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@test.com","bio":"Writes things"}
        "#]],
    );
    check(
        &tools,
        "Create author named Alice whose email is alice@test.com",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@test.com"}
    "#]],
    );
    check(
        &tools,
        r#"Create author Alice with email alice@test.com and create a blog by her titled "Hello" with the content "world""#,
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@test.com"}
            createBlog {"title":"Hello","content":"world","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email alice@test.com, then create blog with title Hello and content world by Alice",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@test.com"}
            createBlog {"title":"Hello","content":"world","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create an author with name=Alice and email=alice@test.com",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@test.com"}
    "#]],
    );
}

#[test]
fn reads() {
    let tools = blog();
    check(
        &tools,
        "list all authors",
        expect![[r#"
        listAuthors {}
    "#]],
    );
    check(
        &tools,
        "show me all blogs and all authors",
        expect![[r#"
        listBlogs {}
        listAuthors {}
    "#]],
    );
    check(
        &tools,
        "get all blog posts",
        expect![[r#"
        listBlogs {}
    "#]],
    );
    check(
        &tools,
        "Show all the authors, please",
        expect![[r#"
        listAuthors {}
    "#]],
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
        "Show me the author with id 507f1f77bcf86cd799439011",
        expect![[r#"
        getAuthor {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "fetch comment 507f1f77bcf86cd799439011",
        expect![[r#"
        getComment {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "list the comments of blog 507f1f77bcf86cd799439011",
        expect![[r#"
        listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "show all pictures for blog 507f1f77bcf86cd799439011",
        expect![[r#"
        listPicturesByBlog {"blogId":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "what are the comments on blog 507f1f77bcf86cd799439011?",
        expect![[r#"
            listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "get blogs 507f1f77bcf86cd799439011 and 507f1f77bcf86cd799439012",
        expect![[r#"
        getBlog = getBlog {"id":"507f1f77bcf86cd799439011"}
        getBlog_2 = getBlog {"id":"507f1f77bcf86cd799439012"}
    "#]],
    );
}

#[test]
fn changes() {
    let tools = blog();
    check(
        &tools,
        "delete author with id 507f1f77bcf86cd799439011",
        expect![[r#"
        deleteAuthor {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "remove comment 507f1f77bcf86cd799439011",
        expect![[r#"
        deleteComment {"id":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "update author 507f1f77bcf86cd799439011 set name to Zed",
        expect![[r#"
        updateAuthor {"id":"507f1f77bcf86cd799439011","name":"Zed"}
    "#]],
    );
    check(
        &tools,
        "rename author 507f1f77bcf86cd799439011 to Zed",
        expect![[r#"
        updateAuthor {"id":"507f1f77bcf86cd799439011","name":"Zed"}
    "#]],
    );
    check(
        &tools,
        "change the title of blog 507f1f77bcf86cd799439011 to New Title",
        expect![[r#"
            updateBlog {"id":"507f1f77bcf86cd799439011","title":"New Title"}
        "#]],
    );
    check(
        &tools,
        "update the blog 507f1f77bcf86cd799439011 with title New and content Newer",
        expect![[r#"
            updateBlog {"id":"507f1f77bcf86cd799439011","title":"New","content":"Newer"}
        "#]],
    );
    check(
        &tools,
        "set the email of author 507f1f77bcf86cd799439011 to z@x.io",
        expect![[r#"
            updateAuthor {"id":"507f1f77bcf86cd799439011","email":"z@x.io"}
        "#]],
    );
    check(
        &tools,
        "change author 507f1f77bcf86cd799439011's bio to Likes tea",
        expect![[r#"
            updateAuthor {"id":"507f1f77bcf86cd799439011","bio":"Likes tea"}
        "#]],
    );
}

#[test]
fn references() {
    let tools = blog();
    check(
        &tools,
        "Create author Alice with email a@x.io, then rename her to Alicia",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            updateAuthor {"id":"{{createAuthor._id}}","name":"Alicia"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then create blog by her titled Hi saying hello, then change its title to Bye",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            updateBlog {"id":"{{createBlog._id}}","title":"Bye"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, create blog by her titled Hi saying hello, then rename it to Bye, and then delete it",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            updateBlog {"id":"{{createBlog._id}}","title":"Bye"}
            deleteBlog {"id":"{{createBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, create blog by Alice titled Hi saying hello, comment on it by Alice saying ok, then delete that comment, then list the comments of that blog",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"ok"}
            deleteComment {"id":"{{createComment._id}}"}
            listCommentsByBlog {"blogId":"{{createBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then show me the author",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        getAuthor {"id":"{{createAuthor._id}}"}
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, create blog by Alice titled Hi saying hello, then show me the blog and list its comments",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{createAuthor._id}}"}
            getBlog {"id":"{{createBlog._id}}"}
            listCommentsByBlog {"blogId":"{{createBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "Get author 507f1f77bcf86cd799439011, then create a blog by that author titled Hi saying hello",
        expect![[r#"
            getAuthor {"id":"507f1f77bcf86cd799439011"}
            createBlog {"title":"Hi","content":"hello","authorId":"{{getAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then list all authors",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        listAuthors {} after "createAuthor"
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io and list all blogs",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        listBlogs {}
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then delete Alice",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        deleteAuthor {"id":"{{createAuthor._id}}"}
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then update Alice's bio to Poet",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            updateAuthor {"id":"{{createAuthor._id}}","bio":"Poet"}
        "#]],
    );
}

#[test]
fn refusals() {
    let tools = blog();
    check(
        &tools,
        "Create blog by Alice titled Hi saying hello",
        expect![[r#"
        no plan: `Alice` in `Create blog by Alice titled Hi saying hello` names no author that this query makes before, so `authorId` of `createBlog` is unknown: make the author in an earlier clause, or give its id, such as `author 507f1f77bcf86cd799439011`
        nearest: createBlog
    "#]],
    );
    check(
        &tools,
        "frobnicate the blog",
        expect![[r#"
            no plan: no tool fits `frobnicate the blog`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createBlog`, `getBlog`, `updateBlog`, `deleteBlog`, `listBlogs`)
            nearest: createBlog getBlog updateBlog deleteBlog listBlogs
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, frobnicate the blog",
        expect![[r#"
            no plan: no tool fits `frobnicate the blog`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createBlog`, `getBlog`, `updateBlog`, `deleteBlog`, `listBlogs`)
            nearest: createBlog getBlog updateBlog deleteBlog listBlogs
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io. Frobnicate everything.",
        expect![[r#"
            no plan: no tool fits `Frobnicate everything`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createAuthor`, `getAuthor`, `updateAuthor`, `deleteAuthor`, `listAuthors`)
            nearest: createAuthor getAuthor updateAuthor deleteAuthor listAuthors
        "#]],
    );
    check(
        &tools,
        "make me a sandwich",
        expect![[r#"
        no plan: no tool fits `make me a sandwich`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createAuthor`, `createBlog`, `createComment`, `createPicture`)
        nearest: createAuthor createBlog createComment createPicture
    "#]],
    );
    check(
        &tools,
        "delete the author",
        expect![[r#"
        no plan: `id` of `deleteAuthor` is missing in `delete the author`: give it: `id 507f1f77bcf86cd799439011`, or speak of something made in an earlier clause
        nearest: deleteAuthor
    "#]],
    );
    check(
        &tools,
        "delete author Alice",
        expect![[r#"
        no plan: `Alice` in `delete author Alice` names no author that this query makes before, so `id` of `deleteAuthor` is unknown: make the author in an earlier clause, or give its id, such as `author 507f1f77bcf86cd799439011`
        nearest: deleteAuthor
    "#]],
    );
    check(
        &tools,
        "update author 507f1f77bcf86cd799439011 set mood to happy",
        expect![[r#"
            no plan: `mood` in `update author 507f1f77bcf86cd799439011 set mood to happy` was not understood: put it between quotation marks if it is text, or leave it out;
              `happy` in `update author 507f1f77bcf86cd799439011 set mood to happy` was not understood: put it between quotation marks if it is text, or leave it out
            nearest: updateAuthor
        "#]],
    );
    check(
        &tools,
        "create author with email a@x.io",
        expect![[r#"
        no plan: `name` of `createAuthor` is missing in `create author with email a@x.io`: add `named …`
        nearest: createAuthor
    "#]],
    );
    check(
        &tools,
        "Create authors Alice (a@x.io) and Bob (b@x.io), then create blog titled Hi saying hello",
        expect![[r#"
            no plan: `authorId` of `createBlog` in `create blog titled Hi saying hello` may mean `Alice` or `Bob`: say which by its name
            nearest: createBlog
        "#]],
    );
    check(
        &tools,
        "create widget titled X by Alice",
        expect![[r#"
        no plan: no tool fits `create widget titled X by Alice`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createBlog`, `createAuthor`, `createComment`, `createPicture`, `updateBlog`)
        nearest: createBlog createAuthor createComment createPicture updateBlog
    "#]],
    );
    check(
        &tools,
        "hello",
        expect![[r#"
            no plan: the query asks for nothing: say what to do, such as `list all …` or `create …`
            nearest: 
        "#]],
    );
    check(
        &tools,
        "",
        expect![[r#"
            no plan: the query asks for nothing: say what to do, such as `list all …` or `create …`
            nearest: 
        "#]],
    );
    check(
        &tools,
        "   ,,, ;",
        expect![[r#"
            no plan: the query asks for nothing: say what to do, such as `list all …` or `create …`
            nearest: 
        "#]],
    );
    check(
        &tools,
        "the blog",
        expect![[r#"
        no plan: `id` of `getBlog` is missing in `the blog`: give it: `id 507f1f77bcf86cd799439011`, or speak of something made in an earlier clause
        nearest: getBlog
    "#]],
    );
    check(
        &tools,
        "delete all blogs",
        expect![[r#"
        no plan: `id` of `deleteBlog` is missing in `delete all blogs`: give it: `id 507f1f77bcf86cd799439011`, or speak of something made in an earlier clause
        nearest: deleteBlog
    "#]],
    );
}

#[test]
fn texts() {
    let tools = blog();
    check(
        &tools,
        "Create author Alice with email a@x.io, then create blog by Alice titled Hello saying use {{createAuthor._id}} here",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"Hello","content":"use {{{{createAuthor._id}} here","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create blog by author 507f1f77bcf86cd799439011 titled Find, Get and Show saying it all",
        expect![[r#"
            createBlog {"title":"Find, Get and Show","content":"it all","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        r#"Create blog by author 507f1f77bcf86cd799439011 titled "then delete author 1" saying 'create comment on blog'"#,
        expect![[r#"
            createBlog {"title":"then delete author 1","content":"create comment on blog","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create a blog by author 507f1f77bcf86cd799439011 with title Costs and content We paid 1,000.5 on 2026-01-01, mail me at a@b.io.",
        expect![[r#"
            createBlog {"title":"Costs","content":"We paid 1,000.5 on 2026-01-01, mail me at a@b.io","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create author Zoë with email zoe@x.io and bio Dichterin aus Köln",
        expect![[r#"
            createAuthor {"name":"Zoë","email":"zoe@x.io","bio":"Dichterin aus Köln"}
        "#]],
    );
    check(
        &tools,
        "create comment on blog 507f1f77bcf86cd799439011 by author 507f1f77bcf86cd799439012: Great!",
        expect![[r#"
            createComment {"blogId":"507f1f77bcf86cd799439011","authorId":"507f1f77bcf86cd799439012","content":"Great!"}
        "#]],
    );
    check(
        &tools,
        r#"create comment "so true" on blog 507f1f77bcf86cd799439011 by author 507f1f77bcf86cd799439012"#,
        expect![[r#"
            createComment {"blogId":"507f1f77bcf86cd799439011","authorId":"507f1f77bcf86cd799439012","content":"so true"}
        "#]],
    );
}

#[test]
fn more_paraphrases() {
    let tools = blog();
    check(
        &tools,
        "please list comments on blog 507f1f77bcf86cd799439011",
        expect![[r#"
        listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
    "#]],
    );
    check(
        &tools,
        "post a comment on blog 507f1f77bcf86cd799439011 by author 507f1f77bcf86cd799439012 saying Nice, then delete it",
        expect![[r#"
            createComment {"blogId":"507f1f77bcf86cd799439011","authorId":"507f1f77bcf86cd799439012","content":"Nice"}
            deleteComment {"id":"{{createComment._id}}"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then write an essay by her titled X saying y",
        expect![[r#"
            no plan: no tool fits `write an essay by her titled X saying y`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createBlog`, `updateBlog`, `createAuthor`, `updateAuthor`, `createComment`)
            nearest: createBlog updateBlog createAuthor updateAuthor createComment
        "#]],
    );
    check(
        &tools,
        "Create an author. Her name is Alice and her email is alice@x.io.",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@x.io"}
        "#]],
    );
    check(
        &tools,
        "Add picture https://x.io/a.png to blog 507f1f77bcf86cd799439011",
        expect![[r#"
        createPicture {"blogId":"507f1f77bcf86cd799439011","url":"https://x.io/a.png"}
    "#]],
    );
    check(
        &tools,
        "write a blog entitled 'Why Rust?' by author 507f1f77bcf86cd799439011 with content: it's fast",
        expect![[r#"
            createBlog {"title":"Why Rust?","content":"it's fast","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create blog titled Hello, by author 507f1f77bcf86cd799439011, content world",
        expect![[r#"
            createBlog {"title":"Hello","content":"world","authorId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email alice@test.com then create a blog by Alice titled Hello about world, create comment on the blog by Alice saying Nice, and add picture https://x.io/p.png to it",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@test.com"}
            createBlog {"title":"Hello","content":"about world","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Nice"}
            createPicture {"blogId":"{{createBlog._id}}","url":"https://x.io/p.png"}
        "#]],
    );
    check(
        &tools,
        "For author 507f1f77bcf86cd799439011 create a blog titled X saying y",
        expect![[r#"
            no plan: `507f1f77bcf86cd799439011` in `For author 507f1f77bcf86cd799439011 create a blog titled X saying y` was not understood: put it between quotation marks if it is text, or leave it out
            nearest: createAuthor
        "#]],
    );
    check(
        &tools,
        "Create blog by Alice titled X saying y after you create author Alice with email a@x.io",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog {"title":"X","content":"y","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        r#"Create author "Alice" with email "alice@x.io""#,
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@x.io"}
    "#]],
    );
    check(
        &tools,
        "create author Alice <alice@x.io>",
        expect![[r#"
        createAuthor {"name":"Alice","email":"alice@x.io"}
    "#]],
    );
    check(
        &tools,
        "Create author:\nname: Alice\nemail: alice@x.io\n\nThen create blog:\ntitle: Hello, World\ncontent: Salt and pepper. Create joy.\n",
        expect![[r#"
            createAuthor {"name":"Alice","email":"alice@x.io"}
            createBlog {"title":"Hello, World","content":"Salt and pepper. Create joy","authorId":"{{createAuthor._id}}"}
            warning[plan.assumed_parameter] tools[1].parameters.authorId: `authorId` was not given; assumed `{{createAuthor._id}}` (say which author is meant, by its name or its id)
        "#]],
    );
    check(
        &tools,
        "delete blog 507f1f77bcf86cd799439011 and comment 507f1f77bcf86cd799439012",
        expect![[r#"
            deleteBlog {"id":"507f1f77bcf86cd799439011"}
            deleteComment {"id":"507f1f77bcf86cd799439012"}
        "#]],
    );
    check(
        &tools,
        "list authors, blogs and comments of blog 507f1f77bcf86cd799439011",
        expect![[r#"
            listAuthors {}
            listBlogs {}
            listCommentsByBlog {"blogId":"507f1f77bcf86cd799439011"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io and create author Bob with email b@x.io, then create blog by Bob titled One saying first, and create comment on it by Alice saying Nice, Bob!",
        expect![[r#"
            createAuthor = createAuthor {"name":"Alice","email":"a@x.io"}
            createAuthor_2 = createAuthor {"name":"Bob","email":"b@x.io"}
            createBlog {"title":"One","content":"first","authorId":"{{createAuthor_2._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Nice, Bob!"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice (a@x.io), create blog by Alice titled One saying first, create blog by Alice titled Two saying second, then comment on One by Alice saying Which is better?",
        expect![[r#"
            createAuthor {"name":"Alice","email":"a@x.io"}
            createBlog = createBlog {"title":"One","content":"first","authorId":"{{createAuthor._id}}"}
            createBlog_2 = createBlog {"title":"Two","content":"second","authorId":"{{createAuthor._id}}"}
            createComment {"blogId":"{{createBlog._id}}","authorId":"{{createAuthor._id}}","content":"Which is better?"}
        "#]],
    );
    check(
        &tools,
        "Create author Alice (a@x.io), create blog by Alice titled One saying first, create blog by Alice titled Two saying second, then comment on the blog by Alice saying hm",
        expect![[r#"
            no plan: `blogId` of `createComment` in `comment on the blog by Alice saying hm` may mean `One` or `Two`: say which by its name
            nearest: createComment
        "#]],
    );
    check(
        &tools,
        r#"Could you create an author named Alice Liddell with email alice@wonder.land, and after that publish a blog post titled "Down, down" by her about rabbit holes?"#,
        expect![[r#"
            createAuthor {"name":"Alice Liddell","email":"alice@wonder.land"}
            createBlog {"title":"Down, down","content":"about rabbit holes","authorId":"{{createAuthor._id}}"}
        "#]],
    );
    check(
        &tools,
        "show blog 507f1f77bcf86cd799439011 and its comments",
        expect![[r#"
            getBlog {"id":"507f1f77bcf86cd799439011"}
            listCommentsByBlog {"blogId":"{{getBlog._id}}"}
        "#]],
    );
    check(
        &tools,
        "update comment 507f1f77bcf86cd799439011 with content Better",
        expect![[r#"
        no plan: no tool fits `update comment 507f1f77bcf86cd799439011 with content Better`: begin the clause with what to do and what with, as in the nearest tools' names (nearest tools: `createComment`, `getComment`, `deleteComment`, `listCommentsByBlog`, `updateBlog`)
        nearest: createComment getComment deleteComment listCommentsByBlog updateBlog
    "#]],
    );
    check(
        &tools,
        "create author Alice with email not-an-email",
        expect![[r#"
        no plan: `not-an-email` in `create author Alice with email not-an-email` does not fit `email` of `createAuthor`: give an e-mail address
        nearest: createAuthor
    "#]],
    );
    check(
        &tools,
        "Create author Alice with email a@x.io, then get her",
        expect![[r#"
        createAuthor {"name":"Alice","email":"a@x.io"}
        getAuthor {"id":"{{createAuthor._id}}"}
    "#]],
    );
    check(
        &tools,
        "who are the authors?",
        expect![[r#"
        listAuthors {}
    "#]],
    );
    check(
        &tools,
        "rename blog 507f1f77bcf86cd799439011",
        expect![[r#"
        no plan: `rename blog 507f1f77bcf86cd799439011` says nothing that `updateBlog` could change: add `set … to …` with `title` or `content`
        nearest: updateBlog
    "#]],
    );
}
