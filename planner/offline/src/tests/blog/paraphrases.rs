//! The same said in other words.

use expect_test::expect;

use super::*;

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
