"""A replay study as a table in the terminal, as one self-contained page, and as one picture.

    terminal.print_study(study, console)     needs rich (extra `cli`)
    html.build_page(study, made_by)
    png.render_png(charts.draw_picture(study))   needs resvg (extra `report`)

figures.py formats numbers, names.py shortens names, palette.py assigns colours, wording.py writes the sentences,
charts.py draws with svg.py; page.html, page.css and page.js are the page around the charts.
"""
