//! The page of a process's figures.

use postern_kit::{
    metrics::{self, Page},
    task::Tasks,
};

use crate::{cli::MetricsArgs, error::Error};

/// Binds the page where it is wished for.
pub(crate) async fn bind(arguments: &MetricsArgs) -> Result<Option<Page>, Error> {
    let Some(address) = &arguments.metrics else {
        return Ok(None);
    };
    let bound = Page::bind(address).await;
    bound.map(Some).map_err(|problem| {
        Error::failed(format!("cannot listen on '{address}' (--metrics)"), problem)
    })
}

/// Serves the page until the tasks end. Tells its URL.
pub(crate) fn serve(page: Option<Page>, tasks: &Tasks) -> Option<String> {
    let page = page?;
    let url = page.url().to_owned();
    let serving = metrics::serve(page, tasks.clone(), tasks.stopping());
    tasks.spawn("metrics", serving);
    Some(url)
}
