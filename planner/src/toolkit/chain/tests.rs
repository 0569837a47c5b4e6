//! Types that fit and types that do not, and routes.
