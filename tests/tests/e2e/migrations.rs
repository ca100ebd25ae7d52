//! The manual's pages for users who come from nginx: each configuration of nginx is started beside the
//! one of Forebay, and a client asks both the same. Differences that the client sees stand in the page,
//! or a test fails.
//!
//! | module | what is compared |
//! |---|---|
//! | `applications` | applications that speak HTTP: one, several, behind a page, with uploads, behind a decider |
//! | `certbot` | TLS with what certbot has fetched by the webroot, and its renewal |
//! | `php` | scripts by php-fpm |
//! | `sites` | files: the cases of `from-nginx.md` |
//! | `streams` | WebSockets, gRPC, server-sent events |
//! | `wordpress` | a real WordPress |

mod applications;
mod certbot;
mod php;
mod sites;
mod streams;
mod wordpress;
