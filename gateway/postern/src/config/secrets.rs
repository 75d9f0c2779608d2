//! What of a tool server's configuration may be a secret. Not every secret can be told from other text, so this is a second line: the
//! first one is a file or a variable for it.

use super::tools::MASK;

/// Parts of names whose values are taken for secrets.
const TELLING: [&str; 7] = [
    "key",
    "token",
    "secret",
    "passw",
    "credential",
    "auth",
    "cookie",
];

/// The words of a command, with a mask in place of what may be a secret: the value of an option or variable with a telling name, a
/// password in a URL, the values of a URL's query, and what follows a header's name.
pub(super) fn mask_words(words: &mut [String]) {
    let mut is_value = false;
    for word in words.iter_mut().skip(1) {
        if std::mem::take(&mut is_value) && !word.starts_with('-') {
            MASK.clone_into(word);
            continue;
        }
        if let Some((name, value)) = word.split_once('=')
            && !name.contains("://")
            && is_telling(name)
            && !value.is_empty()
        {
            *word = format!("{name}={MASK}");
            continue;
        }
        if let Some((name, _)) = word.split_once(": ")
            && is_telling(name)
        {
            *word = format!("{name}: {MASK}");
            continue;
        }
        is_value = word.starts_with('-') && !word.contains('=') && is_telling(word);
        *word = masked_url(word);
    }
}

/// A URL with its password and the values of its query masked; other text as it is. The mask is ASCII, as a URL is.
pub(super) fn masked_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    let authority = place.split('/').next().unwrap_or_default();
    let place = match authority.rsplit_once('@') {
        Some((_, host)) => format!("hidden@{host}{}", &place[authority.len()..]),
        None => place.to_owned(),
    };
    let query = query.map(|query| {
        let names = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) => format!("{name}=hidden"),
            None => "hidden".to_owned(),
        });
        format!("?{}", names.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{place}{}", query.unwrap_or_default())
}

fn is_telling(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TELLING.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn what_may_be_a_secret_is_masked_and_the_rest_stays() {
        let masked = |words: &str| {
            let mut words: Vec<String> = words.split('|').map(str::to_owned).collect();
            mask_words(&mut words);
            words.join("|")
        };
        for (words, shown) in [
            ("npx|-y|server|/srv/project", "npx|-y|server|/srv/project"),
            ("s|--api-key|abc|--port|80", "s|--api-key|…|--port|80"),
            ("s|--token=abc|--name=x", "s|--token=…|--name=x"),
            ("env|GITHUB_TOKEN=abc|s", "env|GITHUB_TOKEN=…|s"),
            ("s|--auth|--verbose", "s|--auth|--verbose"),
            ("s|-H|Authorization: Bearer abc", "s|-H|Authorization: …"),
            ("s|postgres://me:abc@db/x", "s|postgres://hidden@db/x"),
            (
                "s|https://x/mcp?k=abc&flag",
                "s|https://x/mcp?k=hidden&hidden",
            ),
            ("s|https://x/a@b", "s|https://x/a@b"),
        ] {
            assert_eq!(masked(words), shown);
        }
    }
}
