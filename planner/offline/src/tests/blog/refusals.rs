//! What is no plan, and what the refusal says.

use expect_test::expect;

use super::*;

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
            no plan: no tool fits `Frobnicate everything`: begin the clause with what to do and what with (`faber tools list` shows what there is)
            nearest: 
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
              `happy` was not understood: put it between quotation marks if it is text, or leave it out
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
