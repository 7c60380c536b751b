"""A tab of a browser that shows a page from disk."""


def opened(browser, path, address="", **options):
    """The tab, without a network, and what it reports: errors, warnings, requests."""
    tab, events = browser.new_page(offline=True, **options), []
    tab.on("pageerror", lambda error: events.append(error.stack))
    tab.on("console", lambda message: events.append(message.text))

    def asked(request):
        if not request.url.startswith((path.as_uri(), "blob:", "data:")):
            events.append(request.url)

    tab.on("request", asked)
    tab.goto(path.as_uri() + address)
    return tab, events
